package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// The death of the leader makes another replica lead, at the latest when the
// lease has run out.
func TestAnotherReplicaTakesOver(t *testing.T) {
	c := install(t)
	first := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("before-takeover", namespace))
	leader := c.awaitLeader(t)
	port := c.caller(t, c.carrier(t, "before-takeover"))
	second := c.another(t)
	wantDenied(t, port.at(t, second.webhook), "v1", namespace) // every replica answers

	first.kill()
	open := failing(admissionregistrationv1.Ignore)
	c.apply(t, newPolicy("after-takeover", namespace, open))
	// The first one's address does not answer any more, so it is not effective.
	taken := c.awaitCondition(t, "after-takeover", v1alpha1.ConditionRegistered, metav1.ConditionTrue)
	if now := c.awaitLeader(t); now == leader {
		t.Errorf("%s still leads, and is dead", now)
	}
	wantDenied(t, port.at(t, second.webhook), "v1", namespace)
	config := &configuration{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: taken.Status.Webhooks[0].Configuration}, config))
	c.wantMembers(t, config, "after-takeover")
}

// Losing the lease ends the work of a leader and nothing else.
func TestLosingLeadershipStopsWritesOnly(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("while-led", namespace))
	c.awaitDenied(t, namespace, "while-led")
	leader := c.awaitLeader(t)

	await(t).Eventually(func() error { // steal it between two renewals
		lease, err := c.lease(t.Context())
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity = ptr.To("thief")
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](14) // longer than a leader tries to renew
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		return c.Update(t.Context(), lease)
	}).Should(Succeed())
	stolen := time.Now()
	stillServing := func(t *testing.T) {
		t.Helper()
		if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "while-led") {
			t.Fatalf("got %v, want a denial", err)
		}
		if err := m.ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await(t).Eventually(func(g Gomega) {
		stillServing(t)
		log, err := m.output()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(log).To(ContainSubstring("no longer leading"))
	}).Should(Succeed())
	t.Logf("it stopped %s after the theft", time.Since(stolen).Round(time.Second))

	since := c.audit.mark(t)
	c.apply(t, newPolicy("while-not-led", c.namespace(t, nil)))
	if lease, err := c.lease(t.Context()); err != nil || *lease.Spec.HolderIdentity != "thief" {
		t.Fatalf("lease %+v, %v: want the thief's for a moment longer", lease, err)
	}
	if writes := c.audit.managerWrites(t, since); len(writes) > 0 {
		t.Errorf("writes without the lease: %q", writes)
	}
	stillServing(t)

	c.awaitReady(t, "while-not-led")
	if again := c.awaitLeader(t); again != leader {
		t.Errorf("%s leads, want %s again", again, leader)
	}
	stillServing(t)
	if m.ended() {
		t.Errorf("the manager has ended: %v", m.err)
	}
}
