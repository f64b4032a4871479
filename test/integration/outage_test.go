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

	"github.com/ostiary/ostiary/api/v1alpha1"
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

// Promise: never lock out, with the worst policies that can be written, in both
// phases, and several replicas that die at once.
func TestPolicyThatMatchesEverything(t *testing.T) {
	c := install(t)
	f := c.newReplicaGroup(t, 2)
	closed := c.namespace(t, nil)
	lease := newLease(closed)
	must(t, c.Create(t.Context(), lease))
	c.enforce(t, newPolicy("beside-nastiest", closed))
	c.awaitDenied(t, closed, "beside-nastiest")
	worst := []*v1alpha1.WebhookPolicy{
		matchesEverything("nastiest"), matchesEverything("nastiest-mutating", failingToMutate),
		matchesEverything("nastiest-critical", askingForAll),
	}
	c.enforce(t, worst[0])
	c.awaitDenied(t, "default", "nastiest")
	for _, p := range worst[1:] {
		c.enforce(t, p)
	}
	c.awaitDenied(t, "default", "nastiest-mutating") // it comes first
	await(t).Eventually(func() error { return c.renew(t.Context(), lease) }).ShouldNot(Succeed())
	t.Run("with the replicas running", func(t *testing.T) { c.wantGuards(t, lease, true) })
	f.killAll()
	t.Run("with all replicas killed", func(t *testing.T) {
		if err := c.probe(t.Context(), "default", good); !unreachable(err) {
			t.Errorf("got %v, want the API server's refusal", err)
		}
		c.wantGuards(t, lease, true)
	})
	t.Run("a policy for critical resources can be deleted then", func(t *testing.T) {
		c.removeWithConfiguration(t, "nastiest-critical")
		await(t).Eventually(func() error { return c.renew(t.Context(), lease) }).Should(Succeed())
		c.wantGuards(t, lease, false)
	})
	t.Run("the cluster heals when one replica returns", func(t *testing.T) {
		m := c.startAs(t, f.members[1].replica, f.members[1].webhook, f.flags...)
		c.explain(t, m)
		t.Cleanup(m.kill)
		c.awaitDenied(t, "default", "nastiest-mutating")
		c.awaitDenied(t, closed, "nastiest-mutating")
		c.wantGuards(t, lease, false)
	})
	t.Run("the worst ones can be deleted with all replicas dead", func(t *testing.T) {
		c.removeWithConfiguration(t, "nastiest-mutating")
		c.removeWithConfiguration(t, "nastiest")
		c.awaitAllowed(t, "default")
		if err := c.probe(t.Context(), closed, good); !unreachable(err) {
			t.Errorf("the policy beside them: got %v, want the API server's refusal", err)
		}
	})
	t.Run("the next manager starts from there", func(t *testing.T) {
		c.manager(t)
		c.awaitDenied(t, closed, "beside-nastiest")
	})
}

// killAll ends all replicas at once, as a crash would.
func (f *replicaGroup) killAll() {
	for _, m := range f.members {
		_ = m.cmd.Process.Kill()
	}
	for _, m := range f.members {
		<-m.done
	}
}

// removeWithConfiguration deletes a policy, and waits until Kubernetes has
// removed what was registered for it alone.
func (c *cluster) removeWithConfiguration(t *testing.T, policy string) {
	t.Helper()
	p, err := c.policy(t.Context(), policy)
	must(t, err)
	if len(p.Status.Webhooks) == 0 {
		t.Fatalf("policy %s names no webhook", policy)
	}
	c.remove(t, policy)
	for _, w := range p.Status.Webhooks {
		if w.Kind == "MutatingWebhookConfiguration" {
			c.awaitGone(t, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.Configuration}})
		} else {
			c.awaitGone(t, &configuration{ObjectMeta: metav1.ObjectMeta{Name: w.Configuration}})
		}
	}
}

// configurationOf is what a policy's status names, without waiting for Ready.
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

// wantGuards checks what policies for everything must leave alone, and that they
// do not leave other things alone. Critical resources are left alone unless a
// policy asks for them.
func (c *cluster) wantGuards(t *testing.T, lease *coordinationv1.Lease, asked bool) {
	t.Helper()
	ctx := t.Context()
	free := map[string]error{
		"renewing a node's lease":        c.Create(ctx, newLease(corev1.NamespaceNodeLease), client.DryRunAll),
		"leading in kube-system":         c.Create(ctx, newLease(metav1.NamespaceSystem), client.DryRunAll),
		"leading in Ostiary's namespace": c.Create(ctx, newLease(systemNamespace), client.DryRunAll),
		"telling of it in kube-system":   c.Create(ctx, newEvent(metav1.NamespaceSystem), client.DryRunAll),
		"writing in kube-system":         c.probe(ctx, metav1.NamespaceSystem, bad),
		"writing in Ostiary's namespace": c.probe(ctx, systemNamespace, bad),
		"creating a Pod in kube-system":  c.Create(ctx, newPod(metav1.NamespaceSystem), client.DryRunAll),
		"creating Ostiary's own Pod":     c.Create(ctx, newPod(systemNamespace), client.DryRunAll),
		"writing a configuration": c.Create(ctx,
			&configuration{ObjectMeta: metav1.ObjectMeta{Name: "probe.example.com"}}, client.DryRunAll),
		"emptying a configuration":      c.empty(ctx, c.configurationOf(t, "nastiest")),
		"creating a policy":             c.Create(ctx, newPolicy("another", "default"), client.DryRunAll),
		"deleting a policy":             c.Delete(ctx, newPolicy("nastiest", ""), client.DryRunAll),
		"labelling kube-system":         c.touch(ctx, metav1.NamespaceSystem),
		"labelling Ostiary's namespace": c.touch(ctx, systemNamespace),
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	refused := map[string]error{
		"creating a ConfigMap":   c.probe(ctx, lease.Namespace, good),
		"creating a ClusterRole": c.Create(ctx, role, client.DryRunAll),
		"labelling a namespace":  c.touch(ctx, lease.Namespace),
	}
	critical := free
	if asked {
		critical = refused
	}
	own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: "another"}}
	critical["updating a lease"] = c.renew(ctx, lease)
	critical["creating a lease"] = c.Create(ctx, own, client.DryRunAll)
	critical["creating an event"] = c.Create(ctx, newEvent(lease.Namespace), client.DryRunAll)
	reviews := critical
	if c.minor(t) >= excludesReviews {
		reviews = free
	}
	reviews["asking what one may do"] = c.Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"},
		}})
	for what, err := range free {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range refused {
		if err == nil {
			t.Errorf("%s: allowed, want it refused", what)
		}
	}
}

// empty takes the webhooks out of a configuration, without storing that.
func (c *cluster) empty(ctx context.Context, name string) error {
	config := &configuration{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, config); err != nil {
		return err
	}
	config.Webhooks = nil
	return c.Update(ctx, config, client.DryRunAll)
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
