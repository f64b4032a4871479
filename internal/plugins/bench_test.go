package plugins_test

import (
	"testing"
	"time"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// BenchmarkPlugins is the cost of a request for which nothing is asked of the
// API server, in both phases, beside expressions that do the same as one.
func BenchmarkPlugins(b *testing.B) {
	const pods = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n"
	pod := plugintest.Pod("{nodeSelector: {pool: general}, containers: [{name: a, image: a, imagePullPolicy: Always, resources: {requests: {cpu: 1, example.com/gpu: 1}}}, {name: b, image: b}]," +
		"tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}")
	host := policy.Host{Namespaces: plugintest.Namespaces{Annotations: map[string]string{"scheduler.alpha.kubernetes.io/node-selector": "zone=a"}}, Now: time.Now}
	for name, spec := range map[string]string{
		"AlwaysPullImages":           "plugin: {name: AlwaysPullImages}",
		"AlwaysPullImages as CEL":    pods + "validations: [{expression: \"object.spec.containers.all(c, !has(c.imagePullPolicy) || c.imagePullPolicy in ['Always', ''])\"}]",
		"DefaultTolerationSeconds":   "plugin: {name: DefaultTolerationSeconds, config: {defaultNotReadyTolerationSeconds: 30}}",
		"ExtendedResourceToleration": "plugin: {name: ExtendedResourceToleration}",
		"LimitPodHardAntiAffinity":   "plugin: {name: LimitPodHardAntiAffinityTopology}",
		"PodNodeSelector":            "plugin: {name: PodNodeSelector}",
		"PodTolerationRestriction":   "plugin: {name: PodTolerationRestriction}",
	} {
		b.Run(name, func(b *testing.B) {
			group, p := plugintest.Compile(b, spec)
			request := plugintest.Request{Object: pod}.Review(b)
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
