package bench_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/test/bench"
)

func TestPolicies(t *testing.T) {
	tests := map[string]struct{ want, wantForPods int }{
		bench.A:      {1, 1},
		bench.B:      {20, 20},
		bench.C:      {200, 200},
		bench.D:      {1000, 5},
		bench.Probes: {1000, 1000},
	}
	deny := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	for set, tt := range tests {
		t.Run(set, func(t *testing.T) {
			policies, err := bench.Policies(set)
			if err != nil {
				t.Fatal(err)
			}
			forPods := 0
			for _, p := range policies {
				match := p.Spec.MatchConstraints
				if bench.Called([]admissionregistrationv1.RuleWithOperations{match.ResourceRules[0].RuleWithOperations}) {
					forPods++
				}
				if diff := cmp.Diff(bench.NamespaceLabels(), match.NamespaceSelector.MatchLabels); diff != "" {
					t.Errorf("%s: namespaces (-want +got):\n%s", p.Name, diff)
				}
				if len(p.Spec.Bindings) != 1 || !cmp.Equal(p.Spec.Bindings[0].ValidationActions, deny) {
					t.Errorf("%s: bindings %v, want one that denies", p.Name, p.Spec.Bindings)
				}
			}
			if len(policies) != tt.want || forPods != tt.wantForPods {
				t.Errorf("%d policies, %d of them for pods, want %d and %d", len(policies), forPods, tt.want, tt.wantForPods)
			}
		})
	}
}

// Every figure depends on it that the policies do decide.
func TestVerdicts(t *testing.T) {
	for _, set := range append(loaded(), bench.Probes) {
		s := newService(t, set)
		for _, pod := range []string{bench.Good, bench.Bad} {
			want := pod == bench.Good || set == bench.Probes
			for _, path := range s.paths {
				if err := check(answer(s.handler, path, mustReview(t, pod)), want); err != nil {
					t.Errorf("set %s, pod %s: %v", set, pod, err)
				}
			}
		}
	}
}

func TestPodLabels(t *testing.T) {
	pod, err := bench.Pod(bench.Good, map[string]string{bench.ProbeLabel: "p7"})
	if err != nil {
		t.Fatal(err)
	}
	labels := pod["metadata"].(map[string]any)["labels"].(map[string]any)
	if labels[bench.ProbeLabel] != "p7" || labels["team"] != "payments" {
		t.Errorf("labels %v, want the pod's own and %s=p7", labels, bench.ProbeLabel)
	}
}
