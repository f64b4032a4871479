package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/registration"
)

type (
	configuration     = admissionregistrationv1.ValidatingWebhookConfiguration
	configurationList = admissionregistrationv1.ValidatingWebhookConfigurationList
)

// configurations are those that the manager has written for policies.
func (c *cluster) configurations(t *testing.T) []configuration {
	t.Helper()
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	must(t, c.List(t.Context(), &list, client.MatchingLabels{registration.LabelManagedBy: registration.ManagedBy}))
	return slices.DeleteFunc(list.Items, func(config configuration) bool {
		_, ok := registration.GroupOf(&config)
		return !ok
	})
}

// carrier is the configuration that a policy's status names.
func (c *cluster) carrier(t *testing.T, policy string) *configuration {
	t.Helper()
	// A policy whose requests in v1 share a webhook with others has another one for other versions.
	carriers := slices.DeleteFunc(c.carriers(t, policy), func(config registration.Configuration) bool {
		return slices.ContainsFunc(registration.Webhooks(config)[0].MatchConditions, func(m admissionregistrationv1.MatchCondition) bool {
			return m.Name == guard.OtherVersionsCondition
		})
	})
	if len(carriers) == 1 {
		if config, ok := carriers[0].(*configuration); ok {
			return config
		}
	}
	t.Fatalf("policy %s is carried by %v, want one webhook for validations", policy, carriers)
	return nil
}

// wantMembers checks that the annotation and the owner references of a
// configuration name the same policies.
func (c *cluster) wantMembers(t *testing.T, config *configuration, names ...string) {
	t.Helper()
	if diff := cmp.Diff(names, registration.Members(config)); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	want := map[string]types.UID{}
	for _, name := range names {
		p, err := c.policy(t.Context(), name)
		must(t, err)
		want[name] = p.UID
	}
	got := map[string]types.UID{}
	for _, owner := range config.OwnerReferences {
		got[owner.Name] = owner.UID
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

func (c *cluster) remove(t *testing.T, policy string) {
	t.Helper()
	must(t, c.Delete(t.Context(), newPolicy(policy, "")))
}

// discard deletes policies at the end of a test, if they are there.
func (c *cluster) discard(policies ...string) {
	for _, name := range policies {
		_ = c.Delete(context.Background(), newPolicy(name, ""))
	}
}

func (c *cluster) awaitGone(t *testing.T, config registration.Configuration) {
	t.Helper()
	await(t).Eventually(func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(config), registration.NewConfiguration(registration.PhaseOf(config)))
		if err == nil {
			err = fmt.Errorf("%s is still there", config.GetName())
		}
		return client.IgnoreNotFound(err)
	}).Should(Succeed())
}

// Promise: delete means gone.
func TestDeleteMeansGone(t *testing.T) {
	c := install(t)
	t.Run("with the manager running", func(t *testing.T) {
		c.manager(t)
		namespace := c.namespace(t, nil)
		c.enforce(t, newPolicy("gone-a", namespace), newPolicy("gone-b", namespace))
		c.awaitReady(t, "gone-a")
		config := c.carrier(t, "gone-a")
		c.wantMembers(t, config, "gone-a", "gone-b")
		c.awaitDenied(t, namespace, "gone-a")

		c.remove(t, "gone-a")
		await(t).Eventually(func() error {
			err := c.probe(t.Context(), namespace, bad)
			if deniedBy(err, "gone-a") || !deniedBy(err, "gone-b") {
				return fmt.Errorf("got %w, want a denial by gone-b alone", err)
			}
			return nil
		}).Should(Succeed())
		await(t).Eventually(func() []string { return registration.Members(c.carrier(t, "gone-b")) }).Should(Equal([]string{"gone-b"}))
		c.wantMembers(t, c.carrier(t, "gone-b"), "gone-b")

		c.remove(t, "gone-b")
		c.awaitAllowed(t, namespace)
		c.awaitGone(t, config)
	})
	t.Run("with the manager killed", func(t *testing.T) {
		m := c.manager(t)
		namespace := c.namespace(t, nil)
		c.enforce(t, newPolicy("orphan-a", namespace), newPolicy("orphan-b", namespace))
		config := c.carrier(t, "orphan-a")
		c.wantMembers(t, config, "orphan-a", "orphan-b")
		c.awaitDenied(t, namespace, "orphan-a")
		m.kill()

		c.remove(t, "orphan-a")
		if err := c.probe(t.Context(), namespace, bad); !unreachable(err) {
			t.Errorf("got %v, want a refusal: orphan-b is still there", err)
		}
		c.remove(t, "orphan-b")
		c.awaitGone(t, config)
		c.awaitAllowed(t, namespace)
	})
}

// A policy that was deleted and created again under its name is another one.
func TestRecreatedPolicyIsEnforced(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("again", namespace))
	first := c.carrier(t, "again").OwnerReferences[0].UID
	for range 5 {
		c.remove(t, "again")
		c.enforce(t, newPolicy("again", namespace))
		c.awaitDenied(t, namespace, "again")
	}
	await(t).Eventually(func() error {
		config := c.carrier(t, "again")
		for _, owner := range config.OwnerReferences {
			if owner.UID == first {
				return errors.New("the configuration is still owned by the first policy")
			}
		}
		return nil
	}).Should(Succeed())
	// The collector takes away what only the dead own: this one lives.
	await(t).Consistently(func() bool { return deniedBy(c.probe(t.Context(), namespace, bad), "again") }).Should(BeTrue())
	c.wantMembers(t, c.carrier(t, "again"), "again")
}

// What garbage collection takes away after a policy was deleted does not come
// back, although the manager may learn of that first.
func TestDeletedConfigurationsStayDeleted(t *testing.T) {
	c := install(t)
	c.manager(t)
	created := c.creations(t)
	const count = 20
	for i := range count {
		name := fmt.Sprintf("short-lived-%d", i)
		c.enforce(t, newPolicy(name, c.namespace(t, nil)))
	}
	for i := range count {
		c.remove(t, fmt.Sprintf("short-lived-%d", i))
	}
	await(t).Eventually(func() []configuration {
		return slices.DeleteFunc(c.configurations(t), func(config configuration) bool {
			return !strings.HasPrefix(registration.Members(&config)[0], "short-lived-")
		})
	}).Should(BeEmpty())
	for name, times := range created() {
		if times > 1 {
			t.Errorf("configuration %s was created %d times", name, times)
		}
	}
}

// creations counts how often each configuration is created from now on.
func (c *cluster) creations(t *testing.T) func() map[string]int {
	t.Helper()
	w, err := c.Watch(t.Context(), &configurationList{}, client.MatchingLabels{registration.LabelManagedBy: registration.ManagedBy})
	must(t, err)
	created := map[string]int{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if config, ok := event.Object.(*configuration); ok && event.Type == watch.Added {
				created[config.Name]++
			}
		}
	}()
	return func() map[string]int {
		w.Stop()
		<-done
		return created
	}
}
