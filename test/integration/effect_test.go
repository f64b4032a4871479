package integration

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// wall stands between the API server and Ostiary, as a firewall does.
type wall struct {
	address string
	target  string

	mu       sync.Mutex
	listener net.Listener
	drops    bool
	open     map[net.Conn]struct{}
}

// newWall makes one that refuses every connection to what is behind it.
func newWall(t *testing.T, target string) *wall {
	w := &wall{address: cptest.FreeAddress(), target: target, open: map[net.Conn]struct{}{}}
	t.Cleanup(w.refuse)
	return w
}

// refuse closes the port: connections are refused.
func (w *wall) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
	for c := range w.open {
		_ = c.Close()
	}
	clear(w.open)
}

// drop takes connections and lets nothing through.
func (w *wall) drop(t *testing.T) { w.listen(t, true) }

// pass lets everything through.
func (w *wall) pass(t *testing.T) { w.listen(t, false) }

func (w *wall) listen(t *testing.T, drops bool) {
	t.Helper()
	w.refuse()
	l, err := net.Listen("tcp", w.address)
	must(t, err)
	w.mu.Lock()
	w.listener, w.drops = l, drops
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.take(c)
		}
	}()
}

func (w *wall) take(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = struct{}{}
	if w.drops {
		return
	}
	inner, err := net.Dial("tcp", w.target)
	if err != nil {
		_ = c.Close()
		return
	}
	w.open[inner] = struct{}{}
	for _, pair := range [][2]net.Conn{{c, inner}, {inner, c}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		}()
	}
}

// awaitUnreachable waits until a policy says why API servers do not reach Ostiary.
func (c *cluster) awaitUnreachable(t *testing.T, policy, reason, text string) *v1alpha1.WebhookPolicy {
	t.Helper()
	var p *v1alpha1.WebhookPolicy
	await(t).Eventually(func() error {
		var err error
		if p, err = c.policy(t.Context(), policy); err != nil {
			return err
		}
		reachable, ready := condition(p, v1alpha1.ConditionReachable), condition(p, v1alpha1.ConditionReady)
		if reachable.Status != metav1.ConditionFalse || reachable.Reason != reason || !strings.Contains(reachable.Message, text) {
			return fmt.Errorf("Reachable is %+v, want %s with %q", reachable, reason, text)
		}
		if ready.Status != metav1.ConditionFalse || ready.Reason != reason {
			return fmt.Errorf("Ready is %+v, want the same reason", ready)
		}
		return nil
	}).Should(Succeed())
	return p
}

func (c *cluster) failurePolicyOf(t *testing.T, policy string) admissionregistrationv1.FailurePolicyType {
	t.Helper()
	config := &configuration{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: c.configurationOf(t, policy)}, config))
	return *config.Webhooks[0].FailurePolicy
}

// Promise: never lock out, and status tells the truth. Behind a firewall nothing
// is refused, and everybody can read why nothing is enforced; when it opens,
// policies fail closed, and stay so when it closes again.
func TestFirewallBetweenAPIServerAndOstiary(t *testing.T) {
	c := install(t)
	w := newWall(t, c.webhook)
	m := c.restarted(t, "--webhook-url=https://"+w.address)
	m.awaitReady(t)
	c.awaitLeader(t)
	namespace, other := c.namespace(t, nil), c.namespace(t, nil)
	c.apply(t, newPolicy("walled", namespace))

	p := c.awaitUnreachable(t, "walled", "ConnectionRefused", "connect: connection refused")
	if got := condition(p, v1alpha1.ConditionRegistered); got.Status != metav1.ConditionTrue {
		t.Errorf("Registered is %+v", got)
	}
	if got := c.failurePolicyOf(t, "walled"); got != admissionregistrationv1.Ignore || p.Status.FailurePolicy != got {
		t.Errorf("failurePolicy %s, the status says %s, want Ignore", got, p.Status.FailurePolicy)
	}
	for _, verdict := range []string{good, bad} {
		if err := c.probe(t.Context(), namespace, verdict); err != nil {
			t.Errorf("behind the wall, %s: %v", verdict, err)
		}
	}
	out, errOut, err := c.kubectl(t.Context(), "", "get", "whp", "walled")
	if err != nil || !strings.Contains(out, "ConnectionRefused") {
		t.Errorf("kubectl get whp ended with %v and printed\n%s%s, want it to say why nothing is enforced", err, out, errOut)
	}
	w.drop(t)
	c.awaitUnreachable(t, "walled", "TimedOut", "deadline exceeded")

	w.pass(t)
	p = c.awaitReady(t, "walled")
	if got := condition(p, v1alpha1.ConditionReachable); got.Status != metav1.ConditionTrue || got.Reason != "Reachable" {
		t.Errorf("Reachable is %+v", got)
	}
	if got := c.failurePolicyOf(t, "walled"); got != admissionregistrationv1.Fail || p.Status.FailurePolicy != got {
		t.Errorf("failurePolicy %s, the status says %s, want Fail", got, p.Status.FailurePolicy)
	}
	c.awaitDenied(t, namespace, "walled")
	if got := m.series(t, `ostiary_webhook_reachable{address="",phase="validate"}`); got != 1 {
		t.Errorf("ostiary_webhook_reachable is %v", got)
	}

	w.refuse()
	c.apply(t, newPolicy("walled-later", other))
	c.awaitUnreachable(t, "walled", "ConnectionRefused", "connect: connection refused")
	if got := c.failurePolicyOf(t, "walled"); got != admissionregistrationv1.Fail {
		t.Errorf("failurePolicy is %s after the wall closed, want Fail: only the author takes it back", got)
	}
	if err := c.probe(t.Context(), namespace, good); !unreachable(err) {
		t.Errorf("got %v, want the API server's refusal", err)
	}
	for _, reason := range []string{"Reachable", "ConnectionRefused", "TimedOut"} {
		c.awaitCanaryEvent(t, reason)
	}

	w.pass(t)
	c.awaitReady(t, "walled")
	c.awaitReady(t, "walled-later")
	c.awaitDenied(t, other, "walled-later")
}

func (c *cluster) awaitCanaryEvent(t *testing.T, reason string) {
	t.Helper()
	await(t).Eventually(func() error {
		var list eventsv1.EventList
		if err := c.List(t.Context(), &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == "ostiary-canary-validate" && e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no event of the canary with reason %s", reason)
	}).Should(Succeed())
}
