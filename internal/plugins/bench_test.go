package plugins_test

import (
	"context"
	"testing"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

const (
	benchedPod = "{nodeSelector: {pool: general, zone: a}, containers: [{name: a, image: a, imagePullPolicy: Always, resources: {requests: {cpu: 1, example.com/gpu: 1}}}, {name: b, image: b, imagePullPolicy: Always}]," +
		"tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}"
	benchedEvent   = "{apiVersion: v1, kind: Event, metadata: {name: x}, source: {component: kubelet, host: a}, involvedObject: {apiVersion: v1, kind: Pod, namespace: shop, name: web, uid: 86e8b0c8}}"
	benchedService = "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: ClusterIP, ports: [{port: 80}]}}"
	benchedClaim   = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	benchedIngress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x}, spec: {ingressClassName: a, defaultBackend: {service: {name: a, port: {number: 80}}}}}"

	nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
)

// benchedRequest is a request of BenchmarkPlugins.
type benchedRequest struct {
	object                   string // the Pod by default
	group, version, resource string
}

func (r benchedRequest) rules() string {
	return "matchConstraints: {resourceRules: [{apiGroups: ['" + r.group + "'], apiVersions: [" + r.version + "], resources: [" + r.resource + "], operations: [CREATE]}]}\n"
}

// comparison is a plugin, and expressions that do what it does for the request,
// as nearly as expressions can.
type comparison struct {
	name, plugin, cel string
	request           benchedRequest
}

func comparisons() []comparison {
	pods := benchedRequest{object: plugintest.Pod(benchedPod), version: "v1", resource: "pods"}
	const all = "variables: [{name: all, expression: 'object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])'}]\n"
	return []comparison{
		{
			name: "AlwaysDeny", request: pods,
			plugin: "plugin: {name: AlwaysDeny, config: {until: 2001-01-01T00:00:00Z}}\n" + pods.rules(),
			cel:    "validations: [{expression: 'timestamp(\"2001-01-01T00:00:00Z\") < timestamp(\"2002-01-01T00:00:00Z\")'}]",
		},
		{
			name: "AlwaysPullImages", request: pods,
			plugin: "plugin: {name: AlwaysPullImages}",
			cel: all + "mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'object.spec.containers.all(c, c.?imagePullPolicy.orValue(\"\") == \"Always\") ? [] : " +
				"[JSONPatch{op: \"add\", path: \"/spec/containers/0/imagePullPolicy\", value: \"Always\"}]'}}]\n" +
				"validations: [{expression: 'variables.all.all(c, c.?imagePullPolicy.orValue(\"\") == \"Always\")'}, {expression: '!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.image))'}]",
		},
		{
			name: "DefaultIngressClass", request: benchedRequest{benchedIngress, "networking.k8s.io", "v1", "ingresses"},
			plugin: "plugin: {name: DefaultIngressClass, config: {}}",
			cel: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'has(object.spec.ingressClassName) ? [] : " +
				"[JSONPatch{op: \"add\", path: \"/spec/ingressClassName\", value: \"a\"}]'}}]",
		},
		{
			name: "DefaultStorageClass", request: benchedRequest{benchedClaim, "", "v1", "persistentvolumeclaims"},
			plugin: "plugin: {name: DefaultStorageClass, config: {}}",
			cel: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'has(object.spec.storageClassName) ? [] : " +
				"[JSONPatch{op: \"add\", path: \"/spec/storageClassName\", value: \"a\"}]'}}]",
		},
		{
			name: "DefaultTolerationSeconds", request: pods,
			plugin: "plugin: {name: DefaultTolerationSeconds, config: {defaultNotReadyTolerationSeconds: 30}}",
			cel: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[\"not-ready\", \"unreachable\"].filter(k, " +
				"!object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue(\"\") == \"node.kubernetes.io/\" + k && t.?effect.orValue(\"\") == \"NoExecute\"))" +
				".map(k, JSONPatch{op: \"add\", path: \"/spec/tolerations/-\", value: Object.spec.tolerations{key: k, operator: \"Exists\", effect: \"NoExecute\"}})'}}]",
		},
		{
			name: "DenyServiceExternalIPs", request: benchedRequest{benchedService, "", "v1", "services"},
			plugin: "plugin: {name: DenyServiceExternalIPs}",
			cel:    "validations: [{expression: 'size(object.spec.?externalIPs.orValue([])) == 0'}]",
		},
		{
			name: "EventRateLimit", request: benchedRequest{benchedEvent, "", "v1", "events"},
			plugin: "allowCriticalResources: true\nplugin: {name: EventRateLimit, config: {limits: [{type: Server, qps: 1000000, burst: 1000000}, {type: Namespace, qps: 1000000, burst: 1000000}, " +
				"{type: SourceAndObject, qps: 1000000, burst: 1000000}]}}",
			cel: "allowCriticalResources: true\nvalidations: [{expression: 'object.source.component + object.source.host + object.involvedObject.kind + object.involvedObject.namespace + object.involvedObject.name + object.involvedObject.uid != request.namespace'}]",
		},
		{
			name: "ExtendedResourceToleration", request: pods,
			plugin: "plugin: {name: ExtendedResourceToleration}",
			cel: all + "mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'variables.all.map(c, c.?resources.requests.orValue({}).filter(k, k.contains(\"/\"))).filter(l, size(l) > 0)" +
				".map(l, JSONPatch{op: \"add\", path: \"/spec/tolerations/-\", value: Object.spec.tolerations{key: l[0], operator: \"Exists\", effect: \"NoSchedule\"}})'}}]",
		},
		{
			name: "ImagePolicyWebhook, answer known", request: pods,
			plugin: "plugin: {name: ImagePolicyWebhook, config: {imagePolicy: {kubeConfigSecret: {name: s}}}}",
			cel: all + "validations: [{expression: 'variables.all.all(c, c.image in [\"a\", \"b\"])'}, " +
				"{expression: 'object.metadata.?annotations.orValue({}).all(k, !k.contains(\".image-policy.k8s.io/\"))'}]",
		},
		{
			name: "LimitPodHardAntiAffinityTopology", request: pods,
			plugin: "plugin: {name: LimitPodHardAntiAffinityTopology}",
			cel:    "validations: [{expression: 'object.spec.?affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.orValue([]).all(t, t.topologyKey == \"kubernetes.io/hostname\")'}]",
		},
		{
			name: "PodNodeSelector", request: pods,
			plugin: "plugin: {name: PodNodeSelector}",
			cel: "variables: [{name: wanted, expression: 'namespaceObject.metadata.annotations[\"" + nodeSelectorAnnotation + "\"].split(\",\")'}]\n" +
				"mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'variables.wanted.filter(w, object.spec.?nodeSelector[w.split(\"=\")[0]].orValue(\"\") != w.split(\"=\")[1])" +
				".map(w, JSONPatch{op: \"add\", path: \"/spec/nodeSelector/\" + w.split(\"=\")[0], value: w.split(\"=\")[1]})'}}]\n" +
				"validations: [{expression: 'variables.wanted.all(w, object.spec.?nodeSelector[w.split(\"=\")[0]].orValue(\"\") == w.split(\"=\")[1])'}]",
		},
		{
			name: "PodSecurity, baseline", request: pods,
			plugin: "plugin: {name: PodSecurity, config: {defaults: {enforce: baseline, warn: baseline, audit: baseline}}}",
			cel:    all + baselineAsExpressions(),
		},
		{
			name: "PodTolerationRestriction", request: pods,
			plugin: "plugin: {name: PodTolerationRestriction}",
			cel: all + "mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'variables.all.exists(c, size(c.?resources.requests.orValue({})) > 0) && " +
				"!object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue(\"\") == \"node.kubernetes.io/memory-pressure\") ? " +
				"[JSONPatch{op: \"add\", path: \"/spec/tolerations/-\", value: Object.spec.tolerations{key: \"node.kubernetes.io/memory-pressure\", operator: \"Exists\", effect: \"NoSchedule\"}}] : []'}}]\n" +
				"validations: [{expression: 'namespaceObject.metadata.?annotations[\"scheduler.alpha.kubernetes.io/tolerationsWhitelist\"].orValue(\"\") == \"\"'}]",
		},
		{
			name: "ResourceQuota", request: pods,
			plugin: "plugin: {name: ResourceQuota, config: {limitedResources: [{resource: pods, matchContains: [example.com/scarce], matchScopes: [{scopeName: PriorityClass, operator: Exists}]}]}}",
			cel: all + "validations: [{expression: 'variables.all.all(c, c.?resources.requests.orValue({}).all(k, !k.contains(\"example.com/scarce\")) && c.?resources.limits.orValue({}).all(k, !k.contains(\"example.com/scarce\")))'}, " +
				"{expression: 'object.spec.?priorityClassName.orValue(\"\") == \"\"'}]",
		},
	}
}

// baselineAsExpressions is the level baseline of the Pod Security Standards, but
// for seccomp, AppArmor and Windows.
func baselineAsExpressions() string {
	return "validations: [{expression: '!object.spec.?hostNetwork.orValue(false) && !object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)'}, " +
		"{expression: 'object.spec.?volumes.orValue([]).all(v, !has(v.hostPath))'}, " +
		"{expression: 'variables.all.all(c, !c.?securityContext.privileged.orValue(false))'}, " +
		"{expression: 'variables.all.all(c, c.?securityContext.capabilities.add.orValue([]).all(a, a in [\"AUDIT_WRITE\", \"CHOWN\", \"NET_BIND_SERVICE\", \"SETUID\"]))'}, " +
		"{expression: 'variables.all.all(c, c.?securityContext.procMount.orValue(\"Default\") == \"Default\")'}, " +
		"{expression: 'object.spec.?securityContext.sysctls.orValue([]).all(s, s.name in [\"kernel.shm_rmid_forced\", \"net.ipv4.ping_group_range\"])'}, " +
		"{expression: 'variables.all.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))'}]"
}

// BenchmarkPlugins is the cost of a request for which nothing is asked of the
// API server, in both phases, beside expressions that do the same.
func BenchmarkPlugins(b *testing.B) {
	host := policy.Environment{Images: allowing{}, Objects: admission.NewObjectInterfacesFromScheme(scheme.Scheme), TypeConverters: converters{applyconfigurations.NewTypeConverter(scheme.Scheme)}, Namespaces: plugintest.Namespaces{Annotations: map[string]string{nodeSelectorAnnotation: "zone=a"}}, Now: time.Now,
		Listed: plugintest.Known(b, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: a, namespace: shop}, status: {hard: {pods: 9, requests.cpu: 9}, used: {pods: 1, requests.cpu: 1}}}")}
	for _, c := range comparisons() {
		b.Run(c.name+"/plugin", func(b *testing.B) { benchmarkPolicy(b, c.plugin, c.request, host) })
		b.Run(c.name+"/expressions", func(b *testing.B) {
			benchmarkPolicy(b, c.request.rules()+c.cel, c.request, host)
		})
	}
}

func benchmarkPolicy(b *testing.B, spec string, r benchedRequest, host policy.Environment) {
	group, p := plugintest.Compile(b, spec)
	request := plugintest.Request{Object: r.object, Resource: metav1.GroupVersionResource{Group: r.group, Version: r.version, Resource: r.resource}}.Review(b)
	b.ReportAllocs()
	for b.Loop() {
		if p.Spec.Mutates() {
			if answer, err := group.Mutate(b.Context(), request, host); err != nil || !answer.Allowed {
				b.Fatal(err, answer)
			}
		}
		if p.Spec.Validates() {
			if answer, err := group.Validate(b.Context(), request, host); err != nil || !answer.Allowed {
				b.Fatal(err, answer)
			}
		}
	}
}

type converters struct{ managedfields.TypeConverter }

// GetTypeConverter implements policy.TypeConverters.
func (c converters) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	return c.TypeConverter
}

// allowing is a backend that allows all images, so that what is measured is the
// plugin with an answer that it remembers.
type allowing struct{}

func (a allowing) Backend(pluginapi.SecretKey) (pluginapi.ImageBackend, error) { return a, nil }

func (allowing) Review(context.Context, *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	return imagepolicyv1alpha1.ImageReviewStatus{Allowed: true}, nil
}
