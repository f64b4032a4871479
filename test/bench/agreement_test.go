package bench_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/bench"
)

// ruling is what one policy makes of a request.
type ruling struct {
	Decision policy.Decision // of Ostiary
	Message  string          // of the denial
}

// TestBothEnginesAgree compares each policy of the set R2 alone with the native engine, and with
// what it decides among all.
func TestBothEnginesAgree(t *testing.T) {
	pair, err := bench.PairOf(bench.R2)
	if err != nil {
		t.Fatal(err)
	}
	around := surroundingsOf(t, bench.R2)
	native := nativeEngines(t, pair, around.cluster(t))
	compiler := policy.NewCompiler()
	var all []*policy.Compiled
	for _, p := range pair.Ostiary {
		c, errs := compiler.Compile(p)
		if len(errs) > 0 {
			t.Errorf("%s: %v", p.Name, errs.ToAggregate())
		}
		all = append(all, c)
	}
	for pod, want := range map[string]map[policy.Decision]int{
		bench.Good: {policy.DecisionAllow: 130, policy.DecisionSkip: 2},
		bench.Bad: {
			policy.DecisionAllow: 110, policy.DecisionSkip: 2, policy.DecisionDeny: 16, policy.DecisionError: 4,
		},
	} {
		t.Run(pod, func(t *testing.T) {
			alone, counts := map[string]policy.Decision{}, map[policy.Decision]int{}
			for _, c := range all {
				got := rule(t, around, pod, c)
				if message := nativeMessage(t, native[c.Name()], pod); message != got[c.Name()].Message {
					t.Errorf("%s: the native engine answers %q, Ostiary %q", c.Name(), message, got[c.Name()].Message)
				}
				for name, r := range got {
					alone[name] = r.Decision
					counts[r.Decision]++
				}
			}
			if diff := cmp.Diff(want, counts); diff != "" {
				t.Errorf("decisions (-want +got):\n%s\nof the policies %v", diff, alone)
			}
			together := map[string]policy.Decision{}
			for name, r := range rule(t, around, pod, all...) {
				together[name] = r.Decision
			}
			if diff := cmp.Diff(alone, together); diff != "" {
				t.Errorf("decisions of all together (-alone +together):\n%s", diff)
			}
		})
	}
}

// rule evaluates policies in one call. The message is that of the call.
func rule(t *testing.T, around *surroundings, pod string, policies ...*policy.Compiled) map[string]ruling {
	t.Helper()
	request, err := bench.Request(pod)
	if err != nil {
		t.Fatal(err)
	}
	decisions := map[string]policy.Decision{}
	host := around.host()
	host.Observe = func(name string, _ admissionv1.Operation, d policy.Decision, _ time.Duration) { decisions[name] = d }
	response, err := policy.NewGroup(policies).Validate(t.Context(), request, host)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]ruling{}
	for name, d := range decisions {
		out[name] = ruling{Decision: d}
		if !response.Allowed {
			out[name] = ruling{Decision: d, Message: response.Result.Message}
		}
	}
	return out
}

// nativeEngines returns an engine with each native policy of a pair, by name.
func nativeEngines(t *testing.T, pair *bench.Pair, cluster *nativeengine.Cluster) map[string]*nativeengine.Engine {
	t.Helper()
	policies := map[string]*nativeengine.Validating{}
	for _, object := range pair.Native {
		switch o := object.(type) {
		case *admissionregistrationv1.ValidatingAdmissionPolicy:
			policies[o.Name] = &nativeengine.Validating{Policy: o}
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			p := policies[o.Spec.PolicyName]
			p.Bindings = append(p.Bindings, o)
		}
	}
	out := map[string]*nativeengine.Engine{}
	for name, p := range policies {
		engine, err := cluster.CompileValidating(*p)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		out[name] = engine
	}
	return out
}

// nativeMessage is the message of the denial, as Ostiary writes it; "" without one.
func nativeMessage(t *testing.T, engine *nativeengine.Engine, pod string) string {
	t.Helper()
	request, err := bench.Request(pod)
	if err != nil {
		t.Fatal(err)
	}
	attributes, err := nativeengine.NewAttributes(request)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := engine.Evaluate(t.Context(), attributes)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Denial == nil {
		return ""
	}
	_, message, _ := strings.Cut(outcome.Denial.Message, " is forbidden: ")
	return strings.Replace(message, "ValidatingAdmissionPolicy '", "WebhookPolicy '", 1)
}
