package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// The garbage collector removes the owner references of deleted policies. Ostiary does
// not take that for a conflict, and does not restore them.
func TestDeletesAreNoConflict(t *testing.T) {
	const policies, deleted = 60, 50
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	var all []*v1alpha1.WebhookPolicy
	for i := range policies {
		all = append(all, newPolicy(fmt.Sprintf("deletes-%02d", i), namespace))
	}
	c.enforce(t, all...)
	config := c.carrier(t, all[0].Name)
	since := c.audit.mark(t)
	owners := func() (int, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config)
		return len(config.GetOwnerReferences()), err
	}
	for i, p := range all[:deleted] {
		must(t, c.Delete(t.Context(), p))
		await(t).Eventually(owners).Should(Equal(policies - i - 1))
	}
	for _, p := range all[deleted:] {
		c.awaitReady(t, p.Name)
		if _, warnings := c.eventsOf(t, p.Name); len(warnings) > 0 {
			t.Errorf("events of %s: %q", p.Name, warnings)
		}
	}
	writes := 0
	for _, write := range c.audit.managerWrites(t, since) {
		if strings.Contains(write, config.GetName()) {
			writes++
		}
	}
	t.Logf("%d writes of the configuration for %d deletes", writes, deleted)
	if writes > 2*deleted {
		t.Errorf("%d writes of the configuration for %d deletes, want at most two for each", writes, deleted)
	}
}

// Nor does Ostiary restore the owner reference of a policy that is being deleted.
func TestOwnerThatIsBeingDeleted(t *testing.T) {
	const finalizer = "example.com/hold"
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	leaving := newPolicy("owner-leaving", namespace, func(p *v1alpha1.WebhookPolicy) { p.Finalizers = []string{finalizer} })
	c.enforce(t, leaving, newPolicy("owner-staying", namespace))
	release := func() {
		_ = c.Patch(context.Background(), leaving, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	t.Cleanup(release)
	must(t, c.Delete(t.Context(), leaving))
	c.awaitDenied(t, namespace, "owner-staying")
	config := c.carrier(t, "owner-staying")
	remove := func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		config.SetOwnerReferences(slices.DeleteFunc(config.GetOwnerReferences(),
			func(o metav1.OwnerReference) bool { return o.UID == leaving.UID }))
		return c.Update(t.Context(), config)
	}
	await(t).Eventually(remove).Should(Succeed())
	await(t).Consistently(func() (int, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config)
		return len(config.GetOwnerReferences()), err
	}).Should(Equal(1))
	c.awaitDenied(t, namespace, "owner-leaving")
	release()
	await(t).Eventually(func() ([]string, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config)
		return registration.Members(config), err
	}).Should(Equal([]string{"owner-staying"}))
}
