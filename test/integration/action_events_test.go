package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Each change between Audit, Warn and Deny is one Normal event, and no Warning.
func TestEventsOfActionChanges(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	act := func(action admissionregistrationv1.ValidationAction) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Bindings = []v1alpha1.Binding{{Name: "everywhere", ValidationActions: []admissionregistrationv1.ValidationAction{action}}}
		}
	}
	c.enforce(t, newPolicy("acts", namespace, act(admissionregistrationv1.Audit)))
	for _, action := range []admissionregistrationv1.ValidationAction{
		admissionregistrationv1.Warn, admissionregistrationv1.Deny, admissionregistrationv1.Audit,
		admissionregistrationv1.Deny,
	} {
		c.change(t, "acts", act(action))
		c.awaitReady(t, "acts")
	}
	want := []string{
		"enforced: requests that fail a validation are recorded in the audit log",
		"enforced: requests that fail a validation get a warning",
		"enforced: requests that fail a validation are denied",
		"enforced: requests that fail a validation are recorded in the audit log",
		"enforced: requests that fail a validation are denied",
	}
	await(t).Eventually(func() string {
		got, warnings := c.eventsOf(t, "acts")
		for _, w := range warnings {
			t.Fatalf("a Warning: %s", w)
		}
		return cmp.Diff(want, got)
	}).Should(BeEmpty())
}

// eventsOf returns the messages of a policy's events, oldest first.
func (c *cluster) eventsOf(t *testing.T, policy string) (normal, warnings []string) {
	t.Helper()
	var list eventsv1.EventList
	must(t, c.List(t.Context(), &list, client.InNamespace("default")))
	for _, e := range list.Items {
		switch {
		case e.Regarding.Kind != "WebhookPolicy" || e.Regarding.Name != policy:
		case e.Type == corev1.EventTypeNormal:
			normal = append(normal, e.Note)
		default:
			warnings = append(warnings, e.Reason+": "+e.Note)
		}
	}
	return normal, warnings
}
