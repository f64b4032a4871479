package integration

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// evaluations are how often a manager was called for a policy, whatever came of
// it: a condition that is evaluated by Ostiary counts as skipped.
func (m *process) evaluations(t *testing.T, policy string) float64 {
	t.Helper()
	var n float64
	for _, decision := range []string{"allow", "deny", "skip", "error"} {
		n += m.series(t, fmt.Sprintf(`ostiary_policy_requests_total{decision=%q,operation="CREATE",policy=%q}`, decision, policy))
	}
	return n
}

// handedDown are ways to leave ConfigMaps of the name "left" out, which the API
// server knows by itself.
func handedDown() map[string]func(*v1alpha1.WebhookPolicy) {
	return map[string]func(*v1alpha1.WebhookPolicy){
		"condition": onlyIf(`request.name != "left"`),
		"object":    onlyIf(`!(object != null && has(object.metadata.labels) && object.metadata.labels["left"] == "yes")`),
		"names": func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"probe"}
		},
		"exclusion": func(p *v1alpha1.WebhookPolicy) {
			excluded := rule("", "configmaps", admissionregistrationv1.OperationAll)
			excluded.ResourceNames = []string{"left"}
			p.Spec.MatchConstraints.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{excluded}
		},
	}
}

// A policy is not called for requests that the API server knows it excludes.
func TestConditionsAreDelegated(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	for name, edit := range handedDown() {
		t.Run(name, func(t *testing.T) {
			namespace, policy := c.namespace(t, nil), "handed-"+name
			c.enforce(t, newPolicy(policy, namespace, edit))
			c.awaitDenied(t, namespace, policy)
			left := configMap(namespace, bad)
			left.Name, left.Labels = "left", map[string]string{"left": "yes"}
			before := m.evaluations(t, policy)
			for range 10 {
				must(t, c.Create(t.Context(), left.DeepCopy(), client.DryRunAll))
			}
			if got := m.evaluations(t, policy) - before; got != 0 {
				t.Errorf("%v calls for 10 requests that are excluded, want none", got)
			}
			for range 10 {
				if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, policy) {
					t.Errorf("got %v, want a denial", err)
				}
			}
			if got := m.evaluations(t, policy) - before; got != 10 {
				t.Errorf("%v calls for 10 requests that are not excluded", got)
			}
		})
	}
}

// An API server that does not take a condition has it evaluated by Ostiary. The other policy has a timeout, and so a
// call group, of its own: without a condition, the group of the first would be called for it anyway.
func TestConditionThatTheAPIServerRefuses(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	g.refuse(t, `\"not-so-new\"`)
	m := c.behind(t, g)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("refused-condition", namespace, onlyIf(`request.name != "not-so-new"`)),
		newPolicy("taken-condition", namespace, onlyIf(`request.name != "new"`), within(9)))
	for _, name := range []string{"refused-condition", "taken-condition"} {
		c.awaitDenied(t, namespace, name)
	}
	if got := registration.ConditionOf(c.carrier(t, "refused-condition")); got != "" {
		t.Errorf("the condition %s is in a configuration", got)
	}
	if got := registration.ConditionOf(c.carrier(t, "taken-condition")); !strings.Contains(got, `"new"`) {
		t.Errorf("the condition is %q, want that of the policy", got)
	}
	left := configMap(namespace, bad)
	left.Name = "not-so-new"
	await(t).Eventually(func() bool {
		err := c.Create(t.Context(), left.DeepCopy(), client.DryRunAll)
		return !deniedBy(err, "refused-condition") && deniedBy(err, "taken-condition")
	}).Should(BeTrue())
	await(t).Eventually(func() float64 { return m.series(t, "ostiary_rejected_match_conditions") }).Should(BeEquivalentTo(1))
	for policy, want := range map[string]string{"refused-condition": "this API server does not like it", "taken-condition": ""} {
		got := condition(c.awaitReady(t, policy), v1alpha1.ConditionRegistered)
		if says := strings.Contains(got.Message,
			"Ostiary evaluates its match conditions, because the API server rejects them: "); says != (want != "") ||
			!strings.Contains(got.Message, want) {
			t.Errorf("policy %s: condition %+v, want it to say %q", policy, got, want)
		}
	}
}
