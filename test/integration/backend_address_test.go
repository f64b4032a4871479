package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// A policy is not Ready while its external webhook at a new address has not been
// reached.
func TestBackendMovesToAClosedPort(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	c.enforce(t, newPolicy("moves", namespace, hostedBy(f, ca.pem)))
	changes, err := c.Watch(t.Context(), &v1alpha1.WebhookPolicyList{}, client.MatchingFields{"metadata.name": "moves"})
	must(t, err)
	defer changes.Stop()
	closed := cptest.FreeAddress()
	c.change(t, "moves", func(p *v1alpha1.WebhookPolicy) { p.Spec.Backend.URL = "https://" + closed + "/validate" })
	for event := range changes.ResultChan() {
		p, ok := event.Object.(*v1alpha1.WebhookPolicy)
		if !ok {
			t.Fatalf("watching the policy: %+v", event.Object)
		}
		if p.Generation < 2 || p.Status.ObservedGeneration != p.Generation {
			continue
		}
		if ready := condition(p, v1alpha1.ConditionReady); ready.Status == metav1.ConditionTrue {
			t.Fatalf("Ready at the new address: %+v", ready)
		}
		if condition(p, v1alpha1.ConditionReachable).Status == metav1.ConditionFalse {
			return
		}
	}
	t.Fatal("the watch ended before the policy was unreachable")
}
