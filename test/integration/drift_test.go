package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// A deleted configuration is made again.
func TestConfigurationDeletedByHand(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("removed", namespace))
	for range 3 {
		config := c.carrier(t, "removed")
		must(t, c.Delete(t.Context(), config))
		await(t).Eventually(func() error {
			again := &configuration{}
			err := c.Get(t.Context(), client.ObjectKeyFromObject(config), again)
			if err == nil && again.UID == config.UID {
				err = fmt.Errorf("%s is still there", config.Name)
			}
			return err
		}).Should(Succeed())
		c.awaitReady(t, "removed")
		c.awaitDenied(t, namespace, "removed")
	}
}

// The configurations that prove effect are repaired at once too: without one of
// them the next proof would fail, half a minute later.
func TestCanaryChangedByHand(t *testing.T) {
	c := install(t)
	c.manager(t)
	for _, phase := range []registration.Phase{registration.PhaseMutate, registration.PhaseValidate} {
		key := client.ObjectKey{Name: phase.CanaryConfiguration()}
		current := func() registration.Configuration {
			config := registration.NewConfiguration(phase)
			await(t).Eventually(func() error { return c.Get(t.Context(), key, config) }).Should(Succeed())
			return config
		}
		began := time.Now()
		for round := range 3 {
			config := current()
			must(t, c.Delete(t.Context(), config))
			await(t).Eventually(func() bool { return current().GetUID() != config.GetUID() }).Should(BeTrue())
			await(t).Eventually(func() error {
				again := current()
				selector := registration.Webhooks(again)[0].ObjectSelector
				selector.MatchLabels[registration.CanaryLabel] = fmt.Sprint("edited-", round)
				return c.Update(t.Context(), again)
			}).Should(Succeed())
			await(t).Eventually(func() string {
				return registration.Webhooks(current())[0].ObjectSelector.MatchLabels[registration.CanaryLabel]
			}).Should(Equal(string(phase)))
		}
		t.Logf("%s: three deletions and three edits repaired within %s", phase, time.Since(began))
	}
}

// enforcer does to a configuration what AKS does to every one.
func enforcer(config *configuration) {
	selector := config.Webhooks[0].NamespaceSelector
	selector.MatchExpressions = append(selector.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: "control-plane", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
		metav1.LabelSelectorRequirement{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}})
}

// What a cloud adds to keep its own namespaces free is left alone.
func TestSelectorsOfACloudAreTolerated(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("clouded", namespace))
	c.awaitDenied(t, namespace, "clouded")
	since := c.rest(t)
	config := c.carrier(t, "clouded")
	enforcer(config)
	must(t, c.Update(t.Context(), config, client.FieldOwner("admissionsenforcer")))
	c.wantNoWrites(t, since)
	if got := c.carrier(t, "clouded").Webhooks[0].NamespaceSelector.MatchExpressions; len(got) != 3 {
		t.Errorf("the selector is %v, want what was added still in it", got)
	}
	c.awaitReady(t, "clouded")
	c.awaitDenied(t, namespace, "clouded")
}

// overwrite changes a configuration as often as it is repaired, until stopped,
// and counts.
func (c *cluster) overwrite(t *testing.T, name, manager string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	list := &configurationList{}
	w, err := c.Watch(ctx, list, client.MatchingFields{"metadata.name": name})
	must(t, err)
	done := make(chan int)
	go func() {
		n := 0
		for event := range w.ResultChan() {
			config, ok := event.Object.(*configuration)
			if !ok || event.Type == watch.Deleted || *config.Webhooks[0].FailurePolicy == admissionregistrationv1.Ignore {
				continue
			}
			config.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
			if c.Update(ctx, config, client.FieldOwner(manager)) == nil {
				n++
			}
		}
		done <- n
	}()
	return func() int {
		cancel()
		w.Stop()
		return <-done
	}
}

// If another client keeps changing a configuration, the status names it, Ostiary
// backs off, and the configuration is restored in the end.
func TestConflictBacksOff(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("fought", namespace))
	c.awaitDenied(t, namespace, "fought")
	config := c.carrier(t, "fought")
	stop := c.overwrite(t, config.Name, "other-controller")
	await(t).Eventually(func() (metav1.Condition, error) {
		p, err := c.policy(t.Context(), "fought")
		return condition(p, v1alpha1.ConditionReady), err
	}).Should(And(HaveField("Reason", "Conflict"),
		HaveField("Message", And(ContainSubstring(`"other-controller"`), ContainSubstring(config.Name)))))
	series := fmt.Sprintf("ostiary_configuration_conflict{configuration=%q}", config.Name)
	await(t).Eventually(func() float64 { return m.series(t, series) }).Should(BeEquivalentTo(1))
	c.awaitEvent(t, "fought", "Warning", "Conflict")
	time.Sleep(8 * time.Second) // what it takes to wait 1, 2 and 4 seconds
	// Without backing off there would be hundreds.
	if n := stop(); n < 5 || n > 20 {
		t.Errorf("the configuration was overwritten %d times, want it restored at least 5 and at most 20 times", n)
	}
	c.awaitReady(t, "fought")
	c.awaitDenied(t, namespace, "fought")
}
