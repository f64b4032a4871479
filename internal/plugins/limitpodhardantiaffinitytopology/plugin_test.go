package limitpodhardantiaffinitytopology_test

import (
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestTopologies(t *testing.T) {
	const refused = `pods "web" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed`
	const required = "podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
	tests := map[string]struct{ affinity, want string }{
		"none":       {},
		"empty":      {affinity: "podAntiAffinity: {}"},
		"empty list": {affinity: required + "[]}"},
		"nodes":      {affinity: required + "[{topologyKey: kubernetes.io/hostname}]}"},
		"zones":      {affinity: required + "[{topologyKey: zone}]}", want: refused},
		"zones among nodes": {
			affinity: required + "[{topologyKey: kubernetes.io/hostname}, {topologyKey: zone}]}",
			want:     refused,
		},
		"zones, if possible": {
			affinity: "podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone}}]}",
		},
		"affinity, not against": {
			affinity: "podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := plugintest.Ask(t, "plugin: {name: LimitPodHardAntiAffinityTopology}",
				plugintest.Request{Object: plugintest.Pod("{affinity: {" + tc.affinity + "}}")}, policy.Environment{})
			if got.Message != tc.want || tc.want != "" && got.Code != 403 {
				t.Errorf("%d %q, want %q", got.Code, got.Message, tc.want)
			}
		})
	}
}
