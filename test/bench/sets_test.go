package bench_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/bench"
)

func TestPolicies(t *testing.T) {
	tests := map[string]struct{ want, wantForPods int }{
		bench.A:      {1, 1},
		bench.B:      {20, 20},
		bench.C:      {200, 200},
		bench.D:      {1000, 5},
		bench.R:      {64, 64},
		bench.R2:     {134, 132},
		bench.V:      {100, 100},
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
				rules := []admissionregistrationv1.RuleWithOperations{match.ResourceRules[0].RuleWithOperations}
				called, err := bench.Called(t.Context(), rules, nil)
				if err != nil {
					t.Fatal(err)
				}
				if called {
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
			want := allows(set, pod)
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

// Both sides of a comparison have to have the same policies, each in its own namespace.
func TestPairs(t *testing.T) {
	pairs := map[string]*bench.Pair{
		"params":   bench.ParamsPair(3, "p"),
		"bindings": bench.BindingsPair(70, "p"),
		"sentinel": bench.SentinelPair(),
		"apply":    bench.MutationsPair(5, admissionregistrationv1.PatchTypeApplyConfiguration),
		"patch":    bench.MutationsPair(1, admissionregistrationv1.PatchTypeJSONPatch),
	}
	for _, set := range []string{bench.B, bench.C, bench.R2} {
		p, err := bench.PairOf(set)
		if err != nil {
			t.Fatal(err)
		}
		pairs["set "+set] = p
	}
	for name, p := range pairs {
		t.Run(name, func(t *testing.T) {
			bindings := 0
			for _, ours := range p.Ostiary {
				bindings += len(ours.Spec.Bindings)
			}
			if len(p.Ostiary) != p.Policies || len(p.Native) != p.Policies+bindings {
				t.Fatalf("%d policies, %d native objects, want %d and those and %d bindings", len(p.Ostiary), len(p.Native), p.Policies, bindings)
			}
			native := p.Native
			compiler := policy.NewCompiler()
			for _, ours := range p.Ostiary {
				if _, errs := compiler.Compile(ours); len(errs) > 0 {
					t.Errorf("%s: %v", ours.Name, errs)
				}
				if diff := cmp.Diff(bench.Ostiary.Labels(), ours.Spec.MatchConstraints.NamespaceSelector.MatchLabels); diff != "" {
					t.Errorf("%s: namespaces (-want +got):\n%s", ours.Name, diff)
				}
				for i := range ours.Spec.Bindings {
					checkNative(t, ours, native[0], native[1+i])
				}
				native = native[1+len(ours.Spec.Bindings):]
			}
		})
	}
}

func checkNative(t *testing.T, ours *v1alpha1.WebhookPolicy, native, binding client.Object) {
	t.Helper()
	var match *admissionregistrationv1.MatchResources
	switch b := binding.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		match = b.Spec.MatchResources
		if got := native.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec.Validations; !cmp.Equal(got, ours.Spec.NativeValidations()) {
			t.Errorf("%s: native validations %v, want %v", ours.Name, got, ours.Spec.NativeValidations())
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		match = b.Spec.MatchResources
		if got := native.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.Mutations; !cmp.Equal(got, ours.Spec.Mutations) {
			t.Errorf("%s: native mutations %v, want %v", ours.Name, got, ours.Spec.Mutations)
		}
	}
	if diff := cmp.Diff(bench.Native.Labels(), match.NamespaceSelector.MatchLabels); diff != "" {
		t.Errorf("%s: namespaces of the binding (-want +got):\n%s", ours.Name, diff)
	}
}
