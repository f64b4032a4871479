package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const taboo = "unwantedthings"

// alsoFor adds a rule for a resource.
func alsoFor(resource string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules,
			rule("example.com", resource, admissionregistrationv1.Create))
	}
}

// One policy that the API server does not register is left out of its call
// group; its neighbours come into force, and stay there.
func TestRefusedPolicyIsQuarantined(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	g.refuse(t, taboo)
	c.behind(t, g)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("group-a", namespace), newPolicy("group-b", namespace, alsoFor(taboo)),
		newPolicy("group-c", namespace), newPolicy("group-d", namespace, alsoFor("otherthings")))
	for _, name := range []string{"group-a", "group-c", "group-d"} {
		c.awaitReady(t, name)
		c.awaitDenied(t, namespace, name)
	}
	p := c.awaitCondition(t, "group-b", v1alpha1.ConditionStalled, "True")
	if got := condition(p, v1alpha1.ConditionRegistered); got.Status != "False" || got.Reason != "Refused" ||
		!strings.Contains(got.Message, "this API server does not like it") {
		t.Errorf("the condition is %+v, want the API server's own text", got)
	}
	c.awaitEvent(t, "group-b", corev1.EventTypeWarning, "Refused")
	c.wantMembers(t, c.carrier(t, "group-a"), "group-a", "group-c", "group-d")

	t.Run("until it is changed", func(t *testing.T) {
		c.change(t, "group-b", func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules = p.Spec.MatchConstraints.ResourceRules[:1]
		})
		c.awaitReady(t, "group-b")
		c.awaitDenied(t, namespace, "group-b")
	})
	t.Run("what was enforced stays enforced", func(t *testing.T) {
		// Neither the new rules nor the new validation.
		c.change(t, "group-b", func(p *v1alpha1.WebhookPolicy) {
			alsoFor(taboo)(p)
			saying("true")(p)
		})
		p := c.awaitCondition(t, "group-b", v1alpha1.ConditionStalled, "True")
		if got := condition(p, v1alpha1.ConditionReady).Message; !strings.Contains(got, "generation 2 stays enforced") {
			t.Errorf("the message is %q, want it to name the enforced generation", got)
		}
		await(t).Eventually(func() bool { return deniedBy(c.probe(t.Context(), namespace, bad), "group-b") }).Should(BeTrue())
		await(t).Consistently(func() bool { return deniedBy(c.probe(t.Context(), namespace, bad), "group-b") }).Should(BeTrue())
		for _, name := range []string{"group-a", "group-c", "group-d"} {
			c.awaitReady(t, name)
		}
	})
}
