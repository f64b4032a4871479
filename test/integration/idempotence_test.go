package integration

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// growing appends to a list whatever it holds.
var growing = patching(`[JSONPatch{op: "add", path: "/metadata/finalizers", value: object.metadata.?finalizers.orValue([]) + ["example.com/grown"]}]`)

// grown appends to the list once.
var grown = patching(`has(object.metadata.finalizers) ? [] : [JSONPatch{op: "add", path: "/metadata/finalizers", value: ["example.com/grown"]}]`)

const growingAgain = "NotIdempotent spec.mutations[0] changed the object again when applied to its own result, and may change it on every update: " +
	"change the expression, or add a match condition, so that it changes nothing the second time"

func (c *cluster) finalizers(ctx context.Context, namespace string) ([]string, error) {
	object := configMap(namespace, good)
	err := c.Create(ctx, object, client.DryRunAll)
	return object.Finalizers, err
}

// Promise: an event and a metric report a policy that changes its own result again.
// The policy stays enforced. A corrected generation has no event.
func TestMutationsThatAreNotIdempotentAreFound(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace, other := c.namespace(t, nil), c.namespace(t, nil)
	c.enforce(t, newPolicy("grows", namespace, growing), newPolicy("grows-once", other, grown))
	found := `ostiary_policy_not_idempotent_total{policy="grows"}`
	await(t).Eventually(func(g Gomega) {
		for _, in := range []string{namespace, other} {
			g.Expect(c.finalizers(t.Context(), in)).To(Equal([]string{"example.com/grown"}), "the check changes nothing")
		}
		g.Expect(c.warnings(t, "grows")).To(Equal([]string{growingAgain}))
	}).Should(Succeed())
	c.awaitReady(t, "grows")
	if m.series(t, found) == 0 {
		t.Errorf("%s is 0", found)
	}

	// It was changed and checked as often, without a result.
	if got := c.warnings(t, "grows-once"); got != nil {
		t.Errorf("warnings %q of a policy that is idempotent", got)
	}
	if other := `ostiary_policy_not_idempotent_total{policy="grows-once"}`; m.series(t, other) != 0 {
		t.Errorf("%s is not 0", other)
	}

	c.change(t, "grows", grown)
	c.awaitReady(t, "grows")
	await(t).Consistently(func() ([]string, error) {
		_, err := c.finalizers(t.Context(), namespace)
		return c.warnings(t, "grows"), err
	}).Should(Equal([]string{growingAgain}))
}

// warnings are the events of a policy that are not normal.
func (c *cluster) warnings(t *testing.T, policy string) (out []string) {
	t.Helper()
	var list eventsv1.EventList
	must(t, c.List(t.Context(), &list))
	for _, e := range list.Items {
		if e.Regarding.Kind == "WebhookPolicy" && e.Regarding.Name == policy && e.Type != "Normal" {
			out = append(out, fmt.Sprintf("%s %s", e.Reason, e.Note))
		}
	}
	return out
}

// Every replica records the event for requests that it answers.
func TestEveryReplicaReportsMutationsThatAreNotIdempotent(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("grows-elsewhere", namespace, growing))
	follower := c.another(t)

	port := c.mutatingCaller(t, "grows-elsewhere").at(t, follower.webhook)
	await(t).Eventually(func() ([]string, error) {
		answer, err := port.ask(t.Context(), review(t, "v1", namespace, good))
		if err != nil {
			return nil, err
		}
		if !answer.Response.Allowed || len(answer.Response.Patch) == 0 {
			return nil, fmt.Errorf("response %+v, want a patch", answer.Response)
		}
		return c.warnings(t, "grows-elsewhere"), nil
	}).Should(Equal([]string{growingAgain}))
	if name := `ostiary_policy_not_idempotent_total{policy="grows-elsewhere"}`; follower.series(t, name) == 0 ||
		c.shared.series(t, name) != 0 {
		t.Error("another replica than the follower found it")
	}
}

// mutatingCaller calls what the configuration of a policy that only mutates names.
func (c *cluster) mutatingCaller(t *testing.T, policy string) *caller {
	t.Helper()
	for _, config := range c.carriers(t, policy) {
		if m, ok := config.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
			return c.caller(t, &configuration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: m.Webhooks[0].ClientConfig}}})
		}
	}
	t.Fatalf("no configuration carries %s", policy)
	return nil
}

// Promise: a new policy has no warning while the schema of the kind that it mutates is
// read. One without a schema has a warning.
func TestSchemasOnTheirWayAreNoWarning(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	of := func(group, version, resource string) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) {
			grown(p)
			r := &p.Spec.MatchConstraints.ResourceRules[0]
			r.APIGroups, r.APIVersions, r.Resources = []string{group}, []string{version}, []string{resource}
		}
	}
	c.enforce(t, newPolicy("new-schema", namespace, of("flowcontrol.apiserver.k8s.io", "v1", "flowschemas")))
	c.awaitEvent(t, "new-schema", "Normal", "Enforced")
	if got := c.warnings(t, "new-schema"); got != nil {
		t.Errorf("warnings %q of a new policy", got)
	}
	c.apply(t, newPolicy("no-schema", namespace, of("none.example.com", "v1", "nothings")))
	c.awaitEvent(t, "no-schema", "Warning", "SchemaNotReady")
}
