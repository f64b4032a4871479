package registration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// inVersions returns a policy for rules that are written as group/resource=version+version.
func inVersions(name, rules string, changes ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	p := policyFor(name, "pods")
	p.Spec.MatchConstraints.ResourceRules = nil
	for text := range strings.FieldsSeq(rules) {
		place, versions, _ := strings.Cut(text, "=")
		group, resource, _ := strings.Cut(place, "/")
		r := ruleOf(group, resource)
		r.APIVersions = strings.Split(versions, "+")
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, r)
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func allOf(policies ...*v1alpha1.WebhookPolicy) []*v1alpha1.WebhookPolicy { return policies }

func exact(p *v1alpha1.WebhookPolicy) {
	p.Spec.MatchConstraints.MatchPolicy = new(admissionregistrationv1.Exact)
}

// describeGroups returns each group of a plan in the validating phase: the requests for which
// it is, whether it has a condition of policies, and its members.
func describeGroups(plan Plan) []string {
	var out []string
	for _, group := range plan.Groups {
		if group.Phase != PhaseValidate {
			continue
		}
		requests := "all"
		switch {
		case hasCondition(&group.webhook, guard.OtherVersionsCondition):
			requests = "others"
		case *group.webhook.MatchPolicy == admissionregistrationv1.Exact:
			requests = "exact " + strings.Join(group.webhook.Rules[0].APIVersions, "+")
		}
		if conditionOf(&group.webhook) != "" {
			requests += " if"
		}
		out = append(out, requests+": "+strings.Join(group.Members, " "))
	}
	slices.Sort(out)
	return out
}

func hasCondition(w *webhook, name string) bool {
	return slices.ContainsFunc(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == name
	})
}

func TestSeparation(t *testing.T) {
	tests := map[string]struct {
		policies []*v1alpha1.WebhookPolicy
		want     []string
	}{
		"one version": {
			policies: allOf(inVersions("a", "/pods=v1"), inVersions("b", "/pods=v1")),
			want:     []string{"all: a b"},
		},
		"any version and one": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v1")),
			want:     []string{"exact v1: a b", "others: a", "others: b"},
		},
		"three kinds of lists": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v1"), inVersions("c", "/pods=v1+v1beta1")),
			want:     []string{"exact v1: a b c", "others: a", "others: b", "others: c"},
		},
		"no common resource": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/nodes=v1")),
			want:     []string{"all: a", "all: b"},
		},
		"a common resource of some": {
			policies: allOf(
				inVersions("a", "/pods=*"), inVersions("b", "/nodes=*"),
				inVersions("c", "/pods=v1"), inVersions("d", "/secrets=v1+v1beta1"),
			),
			want: []string{"all: d", "exact v1: a b c", "others: a b", "others: c"},
		},
		"a resource of another API group": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "metrics.k8s.io/pods=v1")),
			want:     []string{"all: a", "all: b"},
		},
		"another operation": {
			policies: allOf(inVersions("a", "/pods=*", onOperations("CREATE")), inVersions("b", "/pods=v1", onOperations("DELETE"))),
			want:     []string{"all: a", "all: b"},
		},
		"wildcards": {
			policies: allOf(inVersions("a", "*/*/*=*"), inVersions("b", "/pods=v1")),
			want:     []string{"exact v1: a b", "others: a", "others: b"},
		},
		"a wildcard for another resource": {
			policies: allOf(inVersions("a", "apps/*=*"), inVersions("b", "/pods=v1")),
			want:     []string{"all: a", "all: b"},
		},
		"not v1": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v2"), inVersions("c", "/pods=v1beta1")),
			want:     []string{"all: a", "all: b", "all: c"},
		},
		"not v1 for every resource": {
			policies: allOf(inVersions("a", "/pods=v1 autoscaling/scalers=v2"), inVersions("b", "/pods=v1")),
			want:     []string{"all: a", "all: b"},
		},
		"different lists in a policy": {
			policies: allOf(inVersions("a", "/pods=v1 autoscaling/scalers=v2+v1"), inVersions("b", "/pods=v1")),
			want:     []string{"exact v1: a b", "others: a", "others: b"},
		},
		"overlapping rules": {
			policies: allOf(
				inVersions("a", "apps/*=v1 apps/deployments=v1+v1beta1"), inVersions("b", "apps/deployments=v1"),
			),
			want: []string{"exact v1: a b", "others: a", "others: b"},
		},
		"other settings": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v1", timeout(9))),
			want:     []string{"all: a", "all: b"},
		},
		"Exact": {
			policies: allOf(
				inVersions("a", "/pods=*", exact), inVersions("b", "/pods=v1", exact), inVersions("c", "/pods=v1"),
			),
			want: []string{"all: c", "exact *: a", "exact v1: b"},
		},
		"Exact for v1 is in the group for v1": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v1", exact), inVersions("c", "/pods=v1")),
			want:     []string{"exact v1: a b c", "others: a", "others: c"},
		},
		"a condition": {
			policies: allOf(inVersions("a", "/pods=*", notNamed(1)), inVersions("b", "/pods=v1", notNamed(1))),
			want:     []string{"exact v1 if: a b", "others if: a", "others if: b"},
		},
		"a condition of one, which is called anyway": {
			policies: allOf(inVersions("a", "/pods=*", notNamed(1)), inVersions("b", "/pods=v1")),
			want:     []string{"exact v1: a b", "others if: a", "others: b"},
		},
		"a condition of one, which is not called anyway": {
			policies: allOf(inVersions("a", "/pods=* /nodes=*", notNamed(1)), inVersions("b", "/pods=v1")),
			want:     []string{"all if: a", "all: b"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := Build(Input{Policies: tc.policies, Endpoint: testService})
			checkConfigurations(t, plan)
			if diff := cmp.Diff(tc.want, describeGroups(plan)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			view := NewView(plan, observe(plan))
			for _, p := range tc.policies {
				if refs, ok, why := view.Registered(Prepare(p)); !ok || len(refs) != len(plan.GroupsOf(PhaseValidate, p.Name)) {
					t.Errorf("policy %s: registered in %v, %t: %s", p.Name, refs, ok, why)
				}
			}
		})
	}
}

// TestSeparationWithEventsAllowed: events exist in two API groups, whose requests API servers
// convert into each other in the same version.
func TestSeparationWithEventsAllowed(t *testing.T) {
	critical := func(p *v1alpha1.WebhookPolicy) { p.Spec.AllowCriticalResources = true }
	plan := planOf(inVersions("a", "/events=*", critical), inVersions("b", "/events=v1", critical))
	if diff := cmp.Diff([]string{"all: a", "all: b"}, describeGroups(plan)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// TestSeparationForAnyServedVersions: whatever versions an API server serves, and in whatever
// order it knows them, each policy gets a request once, in the version in which a native
// policy gets it. The plan is the same for all: it knows no served versions.
func TestSeparationForAnyServedVersions(t *testing.T) {
	var policies []*v1alpha1.WebhookPolicy
	for i, versions := range []string{"*", "v1", "v1+v1beta1", "v1beta1+v1", "v2+v1", "v1beta1", "v2", "v2+v1beta1"} {
		rules := "example.com/pods=" + versions
		policies = append(policies, inVersions(fmt.Sprint("equivalent-", i), rules, doingBoth),
			inVersions(fmt.Sprint("exact-", i), rules, doingBoth, exact),
			inVersions(fmt.Sprint("mixed-", i), rules+" example.com/leases=v1 example.com/*=v1+v2", doingBoth),
			inVersions(fmt.Sprint("conditional-", i), rules, doingBoth, onlyIf(`request.operation != "UPDATE"`)))
	}
	plan := Build(Input{Policies: policies, Endpoint: testService, ExemptNamespaces: testExempt})
	if got := len(describeGroups(plan)); got < 10 {
		t.Fatalf("%d groups: the policies are too similar", got)
	}
	var sent int
	for _, served := range ordersOf("v1", "v1beta1", "v2") {
		resource := testResource{"example.com", "pods", served, []string{"", "status"}, true}
		o := newOracle(t, testNamespaces, []testResource{resource})
		for _, version := range served {
			for _, op := range []admission.Operation{admission.Create, admission.Update} {
				attr := resource.attributes(version, "", "prod", "thing", op, nil, nil)
				for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
					sent += checkRequest(t, o, policies, plan, phase, attr).sent
				}
			}
		}
		if t.Failed() {
			t.Fatalf("served: %v", served)
		}
	}
	if sent == 0 {
		t.Error("no request is sent")
	}
}

// ordersOf returns every order of every part of a list.
func ordersOf(all ...string) [][]string {
	var out [][]string
	for i, first := range all {
		out = append(out, []string{first})
		rest := slices.Delete(slices.Clone(all), i, i+1)
		for _, more := range ordersOf(rest...) {
			out = append(out, append([]string{first}, more...))
		}
	}
	return out
}

// TestSeparationCostsNoCalls: no request costs more calls than without separation.
func TestSeparationCostsNoCalls(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	requests := allRequests()
	var saved int
	for seed := range seeds(15) {
		r := rand.New(rand.NewPCG(seed, 11))
		in := Input{Endpoint: testService}
		for _, policy := range randomPolicies(r, 40) {
			match := policy.Spec.MatchConstraints
			match.MatchPolicy, match.NamespaceSelector, match.ObjectSelector = nil, nil, nil
			policy.Spec.TimeoutSeconds, policy.Spec.FailurePolicy, policy.Spec.Bindings = nil, nil, nil
			in.Entries = append(in.Entries, Prepare(policy))
		}
		with := Build(in)
		without := newPlan(in, slices.Values(variantsOf(in.Entries, nil)))
		for _, attr := range requests {
			if r.IntN(12) > 0 {
				continue
			}
			calls, before := callsOf(t, o, with, attr), callsOf(t, o, without, attr)
			for phase, n := range calls {
				if n > before[phase] {
					t.Fatalf("seed %d: %s costs %d calls in phase %s, and %d without separation",
						seed, describe(attr), n, phase, before[phase])
				}
				saved += before[phase] - n
			}
		}
	}
	if saved < 100 {
		t.Errorf("%d calls are saved: the random policies are too different", saved)
	}
}

func callsOf(t *testing.T, o *oracle, plan Plan, attr admission.Attributes) map[Phase]int {
	t.Helper()
	out := map[Phase]int{PhaseMutate: 0, PhaseValidate: 0}
	for _, group := range plan.Groups {
		if group.Key().OfTemplates() {
			continue
		}
		if _, called := o.called(t, group.Configuration, attr); called {
			out[group.Phase]++
		}
	}
	return out
}

// TestSeparatedPolicyIsRegisteredInBothGroups: a policy is registered if it is in the groups for
// both kinds of requests.
func TestSeparatedPolicyIsRegisteredInBothGroups(t *testing.T) {
	a := inVersions("a", "/pods=*")
	plan := planOf(a, inVersions("b", "/pods=v1"))
	observed := ByKey(observe(plan))
	for _, group := range plan.Groups {
		if !slices.Contains(group.Members, "a") {
			continue
		}
		rest := maps.Clone(observed)
		delete(rest, KeyOf(group.Configuration))
		refs, ok, why := NewView(plan, slices.Collect(maps.Values(rest))).Registered(Prepare(a))
		want := "ValidatingWebhookConfiguration " + group.Configuration.GetName() + " does not exist yet"
		if ok || why != want || len(refs) != 1 {
			t.Errorf("without %s: registered in %v, %t: %s, want one webhook and %s", group.Name, refs, ok, why, want)
		}
	}
	// The plan for an earlier generation has only the group for v1.
	earlier := planOf(inVersions("a", "/pods=v1", exact))
	want := "the validating webhook for its latest change is not planned yet"
	if _, ok, why := NewView(earlier, observe(earlier)).Registered(Prepare(a)); ok || why != want {
		t.Errorf("in the group for v1 alone: registered %t: %s, want %s", ok, why, want)
	}
}
