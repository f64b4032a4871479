package registration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func onlyIf(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
	}
}

func notNamed(i int) func(*v1alpha1.WebhookPolicy) {
	return onlyIf(fmt.Sprintf("request.name != %q", fmt.Sprint("n", i)))
}

// Conditions make at most maxDelegated groups, and one more policy replaces at most
// one of them.
func TestDelegatedConditionsAreLimited(t *testing.T) {
	var policies []*v1alpha1.WebhookPolicy
	for i := range 10000 {
		policies = append(policies, policyFor(fmt.Sprintf("p%05d", i), fmt.Sprintf("things%d", i%50), notNamed(i%700)))
	}
	plan := planOf(policies...)
	if n := len(plan.Groups); n > 150 || n <= maxDelegated {
		t.Errorf("%d groups, want at most 150, and more than %d", n, maxDelegated)
	}
	with := 0
	for _, group := range plan.Groups {
		if ConditionOf(group.Configuration) != "" {
			with++
		}
	}
	if with != maxDelegated {
		t.Errorf("%d groups have a condition, want %d", with, maxDelegated)
	}
	few := policies[:200]
	before := planOf(few...)
	for i := range 20 {
		after := planOf(append(slices.Clone(few), policyFor("new", "pods", notNamed(1000+i)))...)
		// A new group, or one that replaces another, whose members join the common group.
		if n := len(differing(t, before, after)); n > 3 {
			t.Errorf("one more policy changes %d groups", n)
		}
	}
}

// TestAddingOneOfManyWritesOneObject adds one policy to 5,000.
func TestAddingOneOfManyWritesOneObject(t *testing.T) {
	var policies []*v1alpha1.WebhookPolicy
	for i := range 5000 {
		policies = append(policies, policyFor(fmt.Sprintf("p%04d", i), fmt.Sprintf("things%d", i%100), timeout(int32(1+i%3))))
	}
	observed := observe(planOf(policies...))
	writes := map[int]int{}
	for i := range 20 {
		changes := Diff(planOf(append(slices.Clone(policies), policyFor(fmt.Sprintf("new%d", i), fmt.Sprintf("things%d", i), timeout(1)))...), observed)
		writes[len(changes.Apply)+len(changes.Delete)]++
	}
	if writes[1] != 20 {
		t.Errorf("number of additions by number of writes: %v, want one write for each", writes)
	}
}

func TestRefusedConditionsAreNotDelegated(t *testing.T) {
	a, b := policyFor("a", "pods", notNamed(1)), policyFor("b", "services", notNamed(2))
	in := Input{Policies: []*v1alpha1.WebhookPolicy{a, b}, Endpoint: testService, CABundle: []byte("bundle")}
	before := Build(in)
	in.RefusedConditions = []string{`(!(has(request.name)) || request.name != "n1")`}
	after := Build(in)
	if len(before.Groups) != 2 || len(after.Groups) != 2 {
		t.Fatalf("%d and %d groups, want 2", len(before.Groups), len(after.Groups))
	}
	got := map[string]string{}
	for _, group := range after.Groups {
		got[group.Members[0]] = ConditionOf(group.Configuration)
	}
	if got["a"] != "" || got["b"] == "" {
		t.Errorf("conditions %q, want one for b alone", got)
	}
	// The policy stays in the old group until it is in the new one.
	changes := Diff(after, observe(before))
	if len(changes.Apply) != 1 || len(changes.Delete) != 1 {
		t.Errorf("changes %v, want one apply and one delete", actions(changes))
	}
	if _, ok, why := NewView(after, observe(after)).Registered(Prepare(a)); !ok {
		t.Errorf("a is not registered: %s", why)
	}
}

func onOperations(operations ...admissionregistrationv1.OperationType) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.MatchConstraints.ResourceRules[0].Operations = operations }
}

// A condition makes no group of its own if the group without a condition is called for
// all of the policy's requests.
func TestConditionsOfCalledGroups(t *testing.T) {
	tests := map[string]struct {
		others  []*v1alpha1.WebhookPolicy
		refused []string
		want    string // the condition of the policy's group
	}{
		"alone":         {want: "delegated"},
		"same resource": {others: []*v1alpha1.WebhookPolicy{policyFor("b", "pods", onOperations("CREATE", "UPDATE"))}},
		"another resource": {
			others: []*v1alpha1.WebhookPolicy{policyFor("b", "services", onOperations("CREATE", "UPDATE"))},
			want:   "delegated",
		},
		"all resources": {others: []*v1alpha1.WebhookPolicy{policyFor("b", "*", onOperations("*"))}},
		"operations of two policies": {
			others: []*v1alpha1.WebhookPolicy{
				policyFor("b", "pods", onOperations("CREATE")),
				policyFor("c", "pods", onOperations("UPDATE", "DELETE")),
			},
		},
		"fewer operations": {others: []*v1alpha1.WebhookPolicy{policyFor("b", "pods", onOperations("CREATE"))}, want: "delegated"},
		"another timeout": {
			others: []*v1alpha1.WebhookPolicy{policyFor("b", "pods", onOperations("CREATE", "UPDATE"), timeout(3))},
			want:   "delegated",
		},
		"another failurePolicy": {
			others: []*v1alpha1.WebhookPolicy{
				policyFor("b", "pods", onOperations("CREATE", "UPDATE"), func(p *v1alpha1.WebhookPolicy) {
					p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
				}),
			},
			want: "delegated",
		},
		"another condition": {
			others: []*v1alpha1.WebhookPolicy{policyFor("b", "pods", onOperations("CREATE", "UPDATE"), notNamed(2))},
			want:   "delegated",
		},
		"a refused condition": {
			others:  []*v1alpha1.WebhookPolicy{policyFor("b", "pods", onOperations("CREATE", "UPDATE"), notNamed(2))},
			refused: []string{Prepare(policyFor("b", "pods", notNamed(2))).Condition()},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := policyFor("a", "pods", notNamed(1), onOperations("CREATE", "UPDATE"))
			plan := Build(Input{Policies: append(tc.others, policy), Endpoint: testService, RefusedConditions: tc.refused})
			group := plan.Groups[slices.IndexFunc(plan.Groups, func(g Group) bool { return slices.Contains(g.Members, "a") })]
			if got := ConditionOf(group.Configuration); (got != "") != (tc.want != "") {
				t.Errorf("condition %q, want one: %t", got, tc.want != "")
			}
			if _, ok, why := NewView(plan, observe(plan)).Registered(Prepare(policy)); !ok {
				t.Errorf("the policy is not registered: %s", why)
			}
		})
	}
}

// A policy whose condition is delegated again is in both groups at first.
func TestConditionIsDelegatedAgain(t *testing.T) {
	policy := policyFor("a", "pods", notNamed(1))
	before, after := planOf(policy, policyFor("b", "pods")), planOf(policy)
	if len(before.Groups) != 1 || len(after.Groups) != 1 || ConditionOf(after.Groups[0].Configuration) == "" {
		t.Fatalf("%d and %d groups, want 1, the second with a condition", len(before.Groups), len(after.Groups))
	}
	if diff := cmp.Diff([]string{"apply 5s [a]", "delete fail-5s"}, actions(Diff(after, observe(before)))); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestWithoutCondition(t *testing.T) {
	plan := Build(Input{Entries: []Entry{Prepare(policyFor("a", "pods", notNamed(1))).WithoutCondition()}, Endpoint: testService})
	if got := ConditionOf(plan.Groups[0].Configuration); got != "" {
		t.Errorf("condition %q, want none", got)
	}
}
