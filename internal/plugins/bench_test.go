package plugins_test

import (
	"context"
	"testing"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// BenchmarkPlugins is the cost of a request for which nothing is asked of the
// API server, in both phases, beside expressions that do the same as one.
func BenchmarkPlugins(b *testing.B) {
	const pods = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n"
	const baseline = pods + "variables: [{name: all, expression: 'object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])'}]\n" +
		"validations: [{expression: '!(has(object.spec.hostNetwork) && object.spec.hostNetwork) && !(has(object.spec.hostPID) && object.spec.hostPID) && !(has(object.spec.hostIPC) && object.spec.hostIPC)'}, " +
		"{expression: '!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))'}, " +
		"{expression: 'variables.all.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)'}, " +
		"{expression: 'variables.all.all(c, !has(c.securityContext) || !has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add))'}, " +
		"{expression: 'variables.all.all(c, !has(c.securityContext) || !has(c.securityContext.procMount) || c.securityContext.procMount == \"Default\")'}, " +
		"{expression: 'variables.all.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))'}]"
	pod := plugintest.Pod("{nodeSelector: {pool: general}, containers: [{name: a, image: a, imagePullPolicy: Always, resources: {requests: {cpu: 1, example.com/gpu: 1}}}, {name: b, image: b}]," +
		"tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}")
	host := policy.Host{Images: allowing{}, Namespaces: plugintest.Namespaces{Annotations: map[string]string{"scheduler.alpha.kubernetes.io/node-selector": "zone=a"}}, Now: time.Now,
		Params: plugintest.Known(b, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: a, namespace: shop}, status: {hard: {pods: 9, requests.cpu: 9}, used: {pods: 1, requests.cpu: 1}}}")}
	const event = "{apiVersion: v1, kind: Event, metadata: {name: x}, source: {component: kubelet, host: a}, involvedObject: {apiVersion: v1, kind: Pod, namespace: shop, name: web, uid: 86e8b0c8}}"
	for name, spec := range map[string]string{
		"AlwaysPullImages":         "plugin: {name: AlwaysPullImages}",
		"AlwaysPullImages as CEL":  pods + "validations: [{expression: \"object.spec.containers.all(c, !has(c.imagePullPolicy) || c.imagePullPolicy in ['Always', ''])\"}]",
		"DefaultTolerationSeconds": "plugin: {name: DefaultTolerationSeconds, config: {defaultNotReadyTolerationSeconds: 30}}",
		"EventRateLimit": "allowCriticalResources: true\nplugin: {name: EventRateLimit, config: {limits: [{type: Server, qps: 1000000, burst: 1000000}, {type: Namespace, qps: 1000000, burst: 1000000}, " +
			"{type: SourceAndObject, qps: 1000000, burst: 1000000}]}}",
		"ExtendedResourceToleration": "plugin: {name: ExtendedResourceToleration}",
		"ImagePolicyWebhook, known":  "plugin: {name: ImagePolicyWebhook, config: {imagePolicy: {kubeConfigSecret: {name: s}}}}",
		"LimitPodHardAntiAffinity":   "plugin: {name: LimitPodHardAntiAffinityTopology}",
		"PodNodeSelector":            "plugin: {name: PodNodeSelector}",
		"PodSecurity":                "plugin: {name: PodSecurity, config: {defaults: {enforce: baseline, warn: baseline, audit: baseline}}}",
		"PodSecurity, some, as CEL":  baseline,
		"ResourceQuota":              "plugin: {name: ResourceQuota, config: {limitedResources: [{resource: pods, matchContains: [example.com/scarce], matchScopes: [{scopeName: PriorityClass, operator: Exists}]}]}}",
		"PodTolerationRestriction":   "plugin: {name: PodTolerationRestriction}",
	} {
		b.Run(name, func(b *testing.B) {
			group, p := plugintest.Compile(b, spec)
			request := plugintest.Request{Object: pod}.Review(b)
			if p.Spec.Plugin != nil && p.Spec.Plugin.Name == v1alpha1.PluginEventRateLimit {
				request = plugintest.Request{Object: event, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "events"}}.Review(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				if p.Spec.Mutates() {
					if _, err := group.Mutate(b.Context(), request, host); err != nil {
						b.Fatal(err)
					}
				}
				if p.Spec.Validates() {
					if _, err := group.Validate(b.Context(), request, host); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// allowing is a backend that allows all images, so that what is measured is the
// plugin with an answer that it remembers.
type allowing struct{}

func (a allowing) Backend(policy.SecretKey) (policy.ImageBackend, error) { return a, nil }

func (allowing) Review(context.Context, *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	return imagepolicyv1alpha1.ImageReviewStatus{Allowed: true}, nil
}
