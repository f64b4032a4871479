package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Promise: never lock out, the ordinary case.
func TestManagerKilled(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	closed, open := c.namespace(t, nil), c.namespace(t, nil)
	c.enforce(t, newPolicy("outage-closed", closed), newPolicy("outage-open", open, failing(admissionregistrationv1.Ignore)))
	warned := c.namespace(t, nil)
	c.enforce(t, newPolicy("outage-warn", warned, acting(admissionregistrationv1.Warn)))
	c.awaitDenied(t, closed, "outage-closed")
	c.awaitDenied(t, open, "outage-open")
	m.kill()

	for _, verdict := range []string{good, bad} {
		if err := c.probe(t.Context(), closed, verdict); !unreachable(err) {
			t.Errorf("fail-closed, %s: got %v, want the API server's refusal", verdict, err)
		}
		if err := c.probe(t.Context(), open, verdict); err != nil {
			t.Errorf("fail-open, %s: %v", verdict, err)
		}
		if err := c.probe(t.Context(), warned, verdict); err != nil {
			t.Errorf("a policy that only warns, %s: %v", verdict, err)
		}
	}
	for _, namespace := range []string{"default", metav1.NamespaceSystem, systemNamespace} {
		if err := c.probe(t.Context(), namespace, bad); err != nil {
			t.Errorf("namespace %s, which no policy selects: %v", namespace, err)
		}
	}

	c.manager(t)
	for namespace, policy := range map[string]string{closed: "outage-closed", open: "outage-open"} {
		c.awaitDenied(t, namespace, policy)
		must(t, c.probe(t.Context(), namespace, good))
	}
}

// Promise: never lock out, with the worst policy that can be written.
func TestNastiestPolicy(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	closed := c.namespace(t, nil)
	lease := newLease(closed)
	must(t, c.Create(t.Context(), lease))
	c.enforce(t, newPolicy("beside-nastiest", closed))
	c.awaitDenied(t, closed, "beside-nastiest")
	c.enforce(t, nastiest("nastiest"))
	c.awaitDenied(t, "default", "nastiest")
	t.Run("with the manager running", func(t *testing.T) { c.wantGuards(t, lease) })
	m.kill()
	t.Run("with the manager killed", func(t *testing.T) {
		if err := c.probe(t.Context(), "default", good); !unreachable(err) {
			t.Errorf("got %v, want the API server's refusal", err)
		}
		c.wantGuards(t, lease)
	})
	t.Run("the cluster heals when the manager returns", func(t *testing.T) {
		m := c.manager(t)
		c.awaitDenied(t, "default", "nastiest")
		c.wantGuards(t, lease)
		m.kill()
	})
	t.Run("it can be deleted with the manager dead", func(t *testing.T) {
		config := &configuration{ObjectMeta: metav1.ObjectMeta{Name: c.configurationOf(t, "nastiest")}}
		c.remove(t, "nastiest")
		c.awaitGone(t, config)
		c.awaitAllowed(t, "default")
		if err := c.probe(t.Context(), closed, good); !unreachable(err) {
			t.Errorf("the policy beside it: got %v, want the API server's refusal", err)
		}
	})
	t.Run("the next manager starts from there", func(t *testing.T) {
		c.manager(t)
		c.awaitDenied(t, closed, "beside-nastiest")
	})
}

// configurationOf is what a policy's status names; nobody may be there to make it Ready.
func (c *cluster) configurationOf(t *testing.T, policy string) string {
	t.Helper()
	p, err := c.policy(t.Context(), policy)
	must(t, err)
	if len(p.Status.Webhooks) == 0 {
		t.Fatalf("policy %s names no webhook", policy)
	}
	return p.Status.Webhooks[0].Configuration
}

func newLease(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "node"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("node"), LeaseDurationSeconds: ptr.To[int32](40)},
	}
}

// wantGuards checks what a policy for everything must leave alone, and that it
// does not leave other things alone.
func (c *cluster) wantGuards(t *testing.T, lease *coordinationv1.Lease) {
	t.Helper()
	ctx := t.Context()
	own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: "another"}}
	for what, err := range map[string]error{
		"updating a lease":               c.renew(ctx, lease),
		"creating a lease":               c.Create(ctx, own, client.DryRunAll),
		"creating an event":              c.Create(ctx, newEvent(lease.Namespace), client.DryRunAll),
		"writing in kube-system":         c.probe(ctx, metav1.NamespaceSystem, bad),
		"writing in Ostiary's namespace": c.probe(ctx, systemNamespace, bad),
		"creating a Pod in kube-system":  c.Create(ctx, newPod(metav1.NamespaceSystem), client.DryRunAll),
		"creating Ostiary's own Pod":     c.Create(ctx, newPod(systemNamespace), client.DryRunAll),
		"writing a configuration":        c.Create(ctx, &configuration{ObjectMeta: metav1.ObjectMeta{Name: "probe.example.com"}}, client.DryRunAll),
		"asking what one may do": c.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"},
		}}),
		"creating a policy":             c.Create(ctx, newPolicy("another", "default"), client.DryRunAll),
		"deleting a policy":             c.Delete(ctx, newPolicy("nastiest", ""), client.DryRunAll),
		"labelling kube-system":         c.touch(ctx, metav1.NamespaceSystem),
		"labelling Ostiary's namespace": c.touch(ctx, systemNamespace),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	for what, err := range map[string]error{
		"creating a ConfigMap":   c.probe(ctx, lease.Namespace, good),
		"creating a ClusterRole": c.Create(ctx, role, client.DryRunAll),
		"labelling a namespace":  c.touch(ctx, lease.Namespace),
	} {
		if err == nil {
			t.Errorf("%s: allowed, want it refused", what)
		}
	}
}

func (c *cluster) renew(ctx context.Context, lease *coordinationv1.Lease) error {
	now := metav1.NowMicro()
	lease.Spec.RenewTime = &now
	return c.Update(ctx, lease)
}

func (c *cluster) touch(ctx context.Context, namespace string) error {
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return err
	}
	ns.Labels["example.com/touched"] = "yes"
	return c.Update(ctx, ns, client.DryRunAll)
}

func newEvent(namespace string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Namespace", Name: namespace, Namespace: namespace},
		Reason:         "Probe", Message: "a probe", Type: corev1.EventTypeNormal,
	}
}

// Promise: never enforce what cannot be served; here, never stop enforcing on
// the way from one call group to another.
func TestMovesKeepEnforcing(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("mover", namespace), newPolicy("stays", namespace, saying("true")))
	c.awaitDenied(t, namespace, "mover")

	ctx, cancel := context.WithCancel(t.Context())
	const callers = 4
	type count struct {
		denied, allowed, other int
		first                  error
	}
	results := make(chan count, callers)
	for range callers {
		go func() {
			var n count
			for ctx.Err() == nil {
				switch err := c.probe(ctx, namespace, bad); {
				case err == nil:
					n.allowed++
				case deniedBy(err, "mover"):
					n.denied++
				case ctx.Err() == nil && !errors.Is(err, context.Canceled):
					n.other++
					n.first = errors.Join(n.first, err)
				}
			}
			results <- n
		}()
	}
	for i := range 20 {
		edit := within(int32(6 + i%2))
		if i%4 == 3 {
			edit = failing([]admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail}[i/4%2])
		}
		c.change(t, "mover", edit)
		c.awaitReady(t, "mover")
	}
	cancel()
	var sum count
	for range callers {
		n := <-results
		sum.denied, sum.allowed, sum.other = sum.denied+n.denied, sum.allowed+n.allowed, sum.other+n.other
		sum.first = errors.Join(sum.first, n.first)
	}
	t.Logf("%d denied, %d allowed, %d failed", sum.denied, sum.allowed, sum.other)
	if sum.allowed > 0 || sum.denied < 20 {
		t.Errorf("%d requests allowed and %d denied during 20 moves, want none allowed", sum.allowed, sum.denied)
	}
	if sum.other > 0 {
		t.Errorf("%d requests failed: %.2000s", sum.other, sum.first)
	}
	// What is left behind goes: each move leaves one group for the mover.
	await(t).Eventually(func() error {
		n := 0
		for _, config := range c.configurations(t) {
			for _, owner := range config.OwnerReferences {
				if owner.Name == "mover" {
					n++
				}
			}
		}
		if n != 1 {
			return fmt.Errorf("%d configurations name the policy", n)
		}
		return nil
	}).Should(Succeed())
}
