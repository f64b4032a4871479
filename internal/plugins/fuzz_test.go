package plugins_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsontree "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
	"github.com/ostiary/ostiary/test/shapes"
)

// fuzzedPlugins are the configurations under fuzz: at least one for each plugin.
func fuzzedPlugins() map[string][]string {
	return map[string][]string{
		"AlwaysDeny":                           {"{}"},
		"AlwaysPullImages":                     {"{ephemeralContainers: true}"},
		"DefaultIngressClass":                  {"{namespaces: [{namespaceSelector: {matchLabels: {a: b}}, className: a}]}"},
		"DefaultStorageClass":                  {"{}"},
		"DefaultTolerationSeconds":             {"{defaultNotReadyTolerationSeconds: 30}"},
		"DenyServiceExternalIPs":               {"{}"},
		"EventRateLimit":                       {"{limits: [{type: Server, qps: 1000, burst: 1000}, {type: Namespace, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1}, {type: SourceAndObject, qps: 1, burst: 1}]}"},
		"ExtendedResourceToleration":           {"{}"},
		"ImagePolicyWebhook":                   {"{imagePolicy: {kubeConfigSecret: {name: a}}}"},
		"LimitPodHardAntiAffinityTopology":     {"{}"},
		"OwnerReferencesPermissionEnforcement": {"{}"},
		"PodNodeSelector":                      {"{clusterDefaultNodeSelector: zone=a, shop: 'zone=a,b=c'}"},
		"PodSecurity": {
			"{defaults: {enforce: restricted, warn: restricted, audit: baseline}, podTemplates: [{group: example.com, version: v1, resource: fleets, paths: [spec.template, 'spec.workers[*].template']}]}",
		},
		"PodTolerationRestriction": {"{default: [{key: a, operator: Exists}], whitelist: [{key: known, operator: Exists}]}"},
		"ResourceQuota": {
			"{limitedResources: [{resource: pods, matchContains: [cpu, example.com/], matchScopes: [{scopeName: PriorityClass, operator: Exists}, {scopeName: BestEffort}, {scopeName: Terminating}, {scopeName: CrossNamespacePodAffinity}]}]}",
			"{limitedResources: [{resource: persistentvolumeclaims, matchContains: [storage], matchScopes: [{scopeName: VolumeAttributesClass, operator: Exists}]}, {resource: services, matchContains: [services]}, {resource: configmaps, matchContains: [count]}]}",
		},
	}
}

// fuzzedResources are what reviews are about, each with an object of its kind.
func fuzzedResources() []plugintest.Request {
	at := func(group, version, resource string) metav1.GroupVersionResource {
		return metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	const (
		container = "{name: a, image: a, ports: [{hostPort: 1}], securityContext: {privileged: true, capabilities: {add: [ALL]}}, resources: {requests: {cpu: 1, example.com/gpu: 1}, limits: {memory: 1Gi}}}"
		podSpec   = "{priorityClassName: high, activeDeadlineSeconds: 5, nodeSelector: {zone: a}, tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 300}], overhead: {cpu: 1}, resources: {requests: {cpu: 2}}," +
			"securityContext: {sysctls: [{name: a, value: b}], seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}, windowsOptions: {hostProcess: true}}," +
			"containers: [" + container + "], initContainers: [{name: b, image: b, restartPolicy: Always}], ephemeralContainers: [{name: c, image: c}], volumes: [{name: v, hostPath: {path: /}}, {name: i, image: {reference: a}}]," +
			"affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaces: [a]}], preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone}}]}}}"
		owners   = "ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: a, uid: a, blockOwnerDeletion: true, controller: true}], managedFields: [{manager: a, fieldsV1: {'f:spec': {'f:storageClassName': {}}}}]"
		meta     = "metadata: {name: web, namespace: shop, labels: {a: b, pod-security.kubernetes.io/enforce: privileged}, annotations: {a.image-policy.k8s.io/b: c}, " + owners + "}"
		pod      = "{apiVersion: v1, kind: Pod, " + meta + ", spec: " + podSpec + ", status: {phase: Running, qosClass: '', containerStatuses: [{name: a, allocatedResources: {cpu: 1}, resources: {requests: {cpu: 1}}}]}}"
		template = "{metadata: {annotations: {a: b}}, spec: " + podSpec + "}"
	)
	return []plugintest.Request{
		{Object: pod},
		{Object: pod, Subresource: "ephemeralcontainers"},
		{Object: "{apiVersion: v1, kind: Namespace, " + meta + "}", Resource: at("", "v1", "namespaces")},
		{Object: "{apiVersion: apps/v1, kind: Deployment, " + meta + ", spec: {template: " + template + "}}", Resource: at("apps", "v1", "deployments")},
		{Object: "{apiVersion: batch/v1, kind: CronJob, " + meta + ", spec: {jobTemplate: {spec: {template: " + template + "}}}}", Resource: at("batch", "v1", "cronjobs")},
		{Object: "{apiVersion: v1, kind: PodTemplate, " + meta + ", template: " + template + "}", Resource: at("", "v1", "podtemplates")},
		{Object: "{apiVersion: example.com/v1, kind: Fleet, " + meta + ", spec: {template: " + template + ", workers: [{template: " + template + "}]}}", Resource: at("example.com", "v1", "fleets")},
		{Object: "{apiVersion: v1, kind: Service, " + meta + ", spec: {type: LoadBalancer, externalIPs: [1.1.1.1], allocateLoadBalancerNodePorts: false, ports: [{port: 80, nodePort: 30000}]}}", Resource: at("", "v1", "services")},
		{Object: "{apiVersion: v1, kind: PersistentVolumeClaim, " + meta + ", spec: {storageClassName: fast, volumeAttributesClassName: a, resources: {requests: {storage: 1Gi}}}, status: {allocatedResources: {storage: 2Gi}, currentVolumeAttributesClassName: b, modifyVolumeStatus: {targetVolumeAttributesClassName: c}}}", Resource: at("", "v1", "persistentvolumeclaims")},
		{Object: "{apiVersion: networking.k8s.io/v1, kind: Ingress, " + meta + ", spec: {ingressClassName: a}}", Resource: at("networking.k8s.io", "v1", "ingresses")},
		{Object: "{apiVersion: v1, kind: Event, " + meta + ", source: {component: a, host: b}, involvedObject: {kind: Pod, name: a, uid: b}}", Resource: at("", "v1", "events")},
		{Object: "{apiVersion: events.k8s.io/v1, kind: Event, " + meta + ", deprecatedSource: {component: a}, regarding: {kind: Pod}}", Resource: at("events.k8s.io", "v1", "events")},
		{Object: "{apiVersion: v1, kind: ConfigMap, " + meta + ", data: {a: b}}", Resource: at("", "v1", "configmaps")},
	}
}

// FuzzPlugins puts requests of any shape to every plugin. None may panic, and
// every answer is a decision or says that the request could not be decoded.
func FuzzPlugins(f *testing.F) {
	var all []*policy.Group
	known := fuzzedPlugins()
	for _, d := range plugins.All() {
		configs := known[string(d.Name)]
		if len(configs) == 0 {
			f.Errorf("there is no configuration of %s", d.Name)
		}
		for _, config := range configs {
			spec := "plugin: {name: " + string(d.Name) + ", config: " + config + "}"
			if d.Name == v1alpha1.PluginEventRateLimit {
				spec += "\nallowCriticalResources: true"
			}
			group, _ := plugintest.Compile(f, spec)
			all = append(all, group)
		}
	}
	resources := fuzzedResources()
	trees := make([]any, len(resources))
	for i, r := range resources {
		text, err := yaml.YAMLToJSON([]byte(r.Object))
		if err == nil {
			err = jsontree.Unmarshal(text, &trees[i])
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	operations := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "NONE"}
	// objectOf is an object, null, nothing, or what bytes say.
	objectOf := func(which uint8, edits []byte) []byte {
		switch n := int(which) % (len(trees) + 3); n {
		case len(trees):
			return []byte("null")
		case len(trees) + 1:
			return nil
		case len(trees) + 2:
			return edits
		default:
			text, err := json.Marshal(shapes.Mangle(trees[n], edits))
			if err != nil {
				f.Fatal(err)
			}
			return text
		}
	}
	null, absent, bytes := uint8(len(trees)), uint8(len(trees)+1), uint8(len(trees)+2)
	for i := range trees {
		own := uint8(i)
		for op := range uint8(len(operations)) {
			f.Add(own, op, own, null, []byte{}, []byte{}, "")
			f.Add(own, op, null, own, []byte{}, []byte{}, "zone=b")
			f.Add(own, op, absent, absent, []byte{}, []byte{}, "[{}]")
			f.Add(own, op, own, own, []byte{0, 9, 0, 0, 20, 18}, []byte{0, 0, 0}, "[null]")
			f.Add(own, op, bytes, bytes, []byte(`{"spec":null,"metadata":null}`), []byte(`{"spec":[],"metadata":""}`), "=")
		}
	}
	f.Fuzz(func(t *testing.T, resource, operation, which, oldWhich uint8, edits, oldEdits []byte, annotation string) {
		r := resources[int(resource)%len(resources)]
		raw := r.Review(t)
		raw.Operation = operations[int(operation)%len(operations)]
		raw.UserInfo = authenticationv1.UserInfo{Username: annotation}
		raw.Object.Raw, raw.OldObject.Raw = objectOf(which, edits), objectOf(oldWhich, oldEdits)
		host := fuzzedHost(annotation)
		host.Panicked = func(p policy.PanicReport) { t.Errorf("a plugin panicked: %v\n%s", p.Err, p.Stack) }
		for _, group := range all {
			for _, phase := range []func(context.Context, *admissionv1.AdmissionRequest, policy.Environment) (*admissionv1.AdmissionResponse, error){group.Mutate, group.Validate} {
				response, err := phase(t.Context(), raw, host)
				var malformed *policy.MalformedError
				if (response == nil) != errors.As(err, &malformed) {
					t.Errorf("the answer is %+v, %v", response, err)
				}
			}
		}
	})
}

func fuzzedHost(annotation string) policy.Environment {
	return policy.Environment{
		Now: time.Now, Images: allowing{}, Kinds: everyKind{}, Pods: onePod{},
		Objects: admission.NewObjectInterfacesFromScheme(scheme.Scheme), TypeConverters: fuzzedConverters,
		Namespaces: plugintest.Namespaces{Labels: map[string]string{"pod-security.kubernetes.io/warn": annotation}, Annotations: map[string]string{
			nodeSelectorAnnotation: annotation, "admission.ostiary.dev/default-storage-class": annotation,
			"scheduler.alpha.kubernetes.io/defaultTolerations": annotation, "scheduler.alpha.kubernetes.io/tolerationsWhitelist": annotation,
		}},
		Params: plugintest.Objects{
			"ResourceQuota": {"{apiVersion: v1, kind: ResourceQuota, metadata: {name: a, namespace: shop}, spec: {hard: {pods: 9}, scopes: [BestEffort]}, status: {hard: {pods: 9, requests.cpu: 9}, used: {pods: 1}}}"},
			"StorageClass":  {"{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}}"},
			"IngressClass":  {"{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: a, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}}"},
		},
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "delete" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	}
}

var fuzzedConverters = converters{applyconfigurations.NewTypeConverter(scheme.Scheme)}

type everyKind struct{}

func (everyKind) ResourcesOf(kind schema.GroupVersionKind) ([]pluginapi.KindResource, error) {
	return []pluginapi.KindResource{{GroupVersionResource: kind.GroupVersion().WithResource("anythings"), Namespaced: true}}, nil
}

type onePod struct{}

func (onePod) PodsIn(context.Context, string) ([]*corev1.Pod, int64, error) {
	return []*corev1.Pod{{}, {Spec: corev1.PodSpec{HostNetwork: true}}}, 1, nil
}
