package integration

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// growing appends to a list whatever it holds.
var growing = patching(`[JSONPatch{op: "add", path: "/metadata/finalizers", value: object.metadata.?finalizers.orValue([]) + ["example.com/grown"]}]`)

// grown appends to the list once.
var grown = patching(`has(object.metadata.finalizers) ? [] : [JSONPatch{op: "add", path: "/metadata/finalizers", value: ["example.com/grown"]}]`)

const growingAgain = "mutations are not idempotent: spec.mutations[0] changed an object that the policy had mutated before: " +
	"add a match condition, or an expression that leaves such objects unchanged"

func (c *cluster) finalizers(ctx context.Context, namespace string) ([]string, error) {
	object := configMap(namespace, good)
	err := c.Create(ctx, object, client.DryRunAll)
	return object.Finalizers, err
}

// notIdempotent is the condition of a policy that says so.
func (c *cluster) notIdempotent(ctx context.Context, policy string) (metav1.Condition, error) {
	p, err := c.policy(ctx, policy)
	return condition(p, v1alpha1.ConditionIdempotent), err
}

// Promise: a policy that changes its own result again says so, and is in force
// all the same. One that is mended no longer says so.
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
		got, err := c.notIdempotent(t.Context(), "grows")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.Status).To(Equal(metav1.ConditionFalse))
	}).Should(Succeed())
	p := c.awaitReady(t, "grows")
	if got := condition(p, v1alpha1.ConditionIdempotent); got.Reason != "NotIdempotent" || got.Message != growingAgain || got.ObservedGeneration != p.Generation {
		t.Errorf("condition %+v, want it to say %q of generation %d", got, growingAgain, p.Generation)
	}
	if m.series(t, found) == 0 {
		t.Errorf("%s is 0", found)
	}
	c.awaitEvent(t, "grows", "Warning", "NotIdempotent")

	// It was changed and checked as often, and said nothing.
	if got, err := c.notIdempotent(t.Context(), "grows-once"); err != nil || got.Status != "" {
		t.Errorf("condition %+v, %v of a policy that is idempotent", got, err)
	}
	if other := `ostiary_policy_not_idempotent_total{policy="grows-once"}`; m.series(t, other) != 0 {
		t.Errorf("%s is not 0", other)
	}

	c.change(t, "grows", grown)
	c.awaitReady(t, "grows")
	gone := func() (metav1.ConditionStatus, error) {
		_, err := c.finalizers(t.Context(), namespace)
		if err != nil {
			return "", err
		}
		got, err := c.notIdempotent(t.Context(), "grows")
		return got.Status, err
	}
	await(t).Eventually(gone).Should(BeEmpty())
	await(t).Consistently(gone).Should(BeEmpty())
	if got := c.warnings(t, "grows"); len(got) != 1 {
		t.Errorf("warnings %q, want one", got)
	}
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

// Whichever replica finds it, the policy says so; the leader's reports leave that alone.
func TestEveryReplicaTellsOfMutationsThatAreNotIdempotent(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("grows-elsewhere", namespace, growing))
	follower := c.another(t)

	port := c.mutatingCaller(t, "grows-elsewhere").at(t, follower.webhook)
	await(t).Eventually(func() (metav1.ConditionStatus, error) {
		answer, err := port.ask(t.Context(), review(t, "v1", namespace, good))
		if err != nil {
			return "", err
		}
		if !answer.Response.Allowed || len(answer.Response.Patch) == 0 {
			return "", fmt.Errorf("response %+v, want a patch", answer.Response)
		}
		got, err := c.notIdempotent(t.Context(), "grows-elsewhere")
		return got.Status, err
	}).Should(Equal(metav1.ConditionFalse))
	if name := `ostiary_policy_not_idempotent_total{policy="grows-elsewhere"}`; follower.series(t, name) == 0 || c.shared.series(t, name) != 0 {
		t.Error("it was not the follower that found it")
	}
	// The leader reports on the same generation once more.
	p, err := c.policy(t.Context(), "grows-elsewhere")
	must(t, err)
	must(t, c.Status().Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"status": {"actions": "None"}}`))))
	await(t).Eventually(func() (string, error) {
		p, err = c.policy(t.Context(), "grows-elsewhere")
		return p.Status.Actions, err
	}).Should(Equal("Mutate"))
	if got := condition(p, v1alpha1.ConditionIdempotent); got.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v after a report of the leader", got)
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

// Promise: a policy that is new tells of nothing but that it is in force, though
// the schema of what it mutates is read only then. One that has nothing to mutate
// says so.
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
	c.awaitEvent(t, "new-schema", "Normal", "Enforcing")
	if got := c.warnings(t, "new-schema"); got != nil {
		t.Errorf("warnings %q of a new policy", got)
	}
	c.apply(t, newPolicy("no-schema", namespace, of("none.example.com", "v1", "nothings")))
	c.awaitEvent(t, "no-schema", "Warning", "SchemaNotReady")
}
