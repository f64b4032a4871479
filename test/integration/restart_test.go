package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const manyPolicies = 500

// manyGroups spread the policies of the restart over several configurations.
const manyGroups = 5

// Promise: no write at rest, and never enforce what cannot be served: a restart
// with many policies changes nothing and lets nothing through.
func TestRestartWithManyPolicies(t *testing.T) {
	c := install(t)
	c.manager(t)
	c.awaitNoPolicies(t)
	namespace := c.namespace(t, nil)
	names := make([]string, manyPolicies)
	created := make([]error, manyPolicies)
	workqueue.ParallelizeUntil(t.Context(), 8, manyPolicies, func(i int) {
		names[i] = fmt.Sprintf("many-%03d", i)
		created[i] = c.Create(t.Context(), newPolicy(names[i], namespace, within(int32(1+i%manyGroups))))
	})
	t.Cleanup(func() { _ = c.DeleteAllOf(context.Background(), &v1alpha1.WebhookPolicy{}) })
	must(t, errors.Join(created...))
	for _, name := range names {
		c.awaitReady(t, name)
	}
	for i := range manyGroups {
		c.awaitDenied(t, namespace, names[i])
	}
	config := c.carrier(t, names[manyPolicies-1])
	if got, want := len(c.configurations(t)), manyGroups; got != want {
		t.Errorf("%d configurations, want %d", got, want)
	}

	c.shared.kill()
	quiet := c.audit.mark(t)
	hammer := startHammer(t, c.caller(t, config), review(t, "v1", namespace, bad))
	m := c.restarted(t)
	m.awaitReady(t)
	if got := m.series(t, `ostiary_policies{state="accepted"}`); got != manyPolicies {
		t.Errorf("ready with %v policies loaded, want %d", got, manyPolicies)
	}
	after := hammer.denied.Load()
	await(t).Eventually(hammer.denied.Load).Should(BeNumerically(">", after+20))
	hammer.stop(t)

	// The leader has looked at everything when it counts the configurations.
	await(t).Eventually(func() float64 {
		return m.series(t,
			`ostiary_registered_configurations{phase="validate"}`)
	}).Should(BeEquivalentTo(manyGroups))
	c.wantNoWrites(t, quiet)
}

// awaitNoPolicies waits until what other tests have left is gone.
func (c *cluster) awaitNoPolicies(t *testing.T) {
	t.Helper()
	await(t).Eventually(func() []configuration { return c.configurations(t) }).Should(BeEmpty())
}

// hammer asks a webhook port again and again about a request that is to be
// denied, whatever state the manager is in.
type hammer struct {
	denied, unavailable, refused atomic.Int64

	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	wrong  []string
}

func startHammer(t *testing.T, c *caller, body []byte) *hammer {
	ctx, cancel := context.WithCancel(t.Context())
	h := &hammer{cancel: cancel}
	for range 4 {
		h.wait.Go(func() {
			for ctx.Err() == nil {
				h.strike(ctx, c, body)
			}
		})
	}
	t.Cleanup(func() { cancel(); h.wait.Wait() })
	return h
}

func (h *hammer) strike(ctx context.Context, c *caller, body []byte) {
	answer, err := c.ask(ctx, body)
	var status *statusError
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &status) && status.code == http.StatusServiceUnavailable:
		h.unavailable.Add(1)
	case errors.As(err, &status):
		h.complain("answered " + status.Error())
	case err != nil:
		h.refused.Add(1)
	case answer.Response.Allowed:
		h.complain("answered that the request is allowed")
	default:
		h.denied.Add(1)
	}
}

func (h *hammer) complain(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, text)
}

func (h *hammer) stop(t *testing.T) {
	t.Helper()
	h.cancel()
	h.wait.Wait()
	t.Logf("%d denied, %d unavailable, %d without a connection", h.denied.Load(), h.unavailable.Load(), h.refused.Load())
	if len(h.wrong) > 0 {
		t.Errorf("%d wrong answers, the first: %s", len(h.wrong), h.wrong[0])
	}
	if h.refused.Load() == 0 {
		t.Error("the hammer was never refused: it began after the manager")
	}
}

// Promise: no write at rest.
func TestNoWriteAtRest(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("rest-a", namespace), newPolicy("rest-b", namespace, within(7)),
		newPolicy("rest-warn", namespace, acting("Warn")), newPolicy("rest-fails", namespace, failing("Ignore")))
	c.apply(t, newPolicy("rest-broken", namespace, saying("nonsense")))
	c.awaitCondition(t, "rest-broken", v1alpha1.ConditionAccepted, "False")
	c.awaitDenied(t, namespace, "rest-a")
	c.restingBackends(t)
	t.Run("while nothing happens", func(t *testing.T) { c.wantNoWrites(t, c.rest(t)) })
	t.Run("while the policies are used", func(t *testing.T) {
		since := c.rest(t)
		for range 20 {
			_ = c.probe(t.Context(), namespace, bad)
		}
		c.wantNoWrites(t, since)
	})
	t.Run("after a foreign label on a configuration", func(t *testing.T) {
		since := c.rest(t)
		config := c.carrier(t, "rest-a")
		config.Labels["example.com/owner"] = "somebody"
		must(t, c.Update(t.Context(), config))
		c.wantNoWrites(t, since)
		if got := c.carrier(t, "rest-a").Labels["example.com/owner"]; got != "somebody" {
			t.Errorf("the label is %q, want it left alone", got)
		}
	})
	t.Run("after an annotation on a policy", func(t *testing.T) {
		since := c.rest(t)
		c.change(t, "rest-a", func(p *v1alpha1.WebhookPolicy) { p.Annotations = map[string]string{"example.com/note": "x"} })
		c.wantNoWrites(t, since)
	})
	t.Run("after a restart", func(t *testing.T) {
		since := c.rest(t)
		m := c.restarted(t)
		m.awaitReady(t)
		c.awaitLeader(t)
		await(t).Eventually(func() float64 {
			return m.series(t,
				`ostiary_registered_configurations{phase="validate"}`)
		}).Should(BeEquivalentTo(len(c.configurations(t))))
		c.wantNoWrites(t, since)
	})
}

// rest waits until the manager has nothing left to write, and gives a mark of when
// that began: a change of who is called it announces two seconds later.
func (c *cluster) rest(t *testing.T) int64 {
	t.Helper()
	var since int64
	await(t).Eventually(func() []string {
		since = c.audit.mark(t)
		time.Sleep(3 * time.Second)
		return c.audit.managerWrites(t, since)
	}).Should(BeEmpty())
	return since
}

// wantNoWrites checks for some seconds that the manager has written nothing since a mark.
func (c *cluster) wantNoWrites(t *testing.T, since int64) {
	t.Helper()
	await(t).Consistently(func() []string { return c.audit.managerWrites(t, since) }, 4*time.Second, 250*time.Millisecond).Should(BeEmpty())
}

// SIGTERM ends the manager in order: it lets go of the lease, and succeeds.
func TestEndsInOrder(t *testing.T) {
	c := install(t)
	c.manager(t)
	m := c.restarted(t, "--drain-max=5s") // API servers take 90 seconds to close a connection that they opened and did not use
	m.awaitReady(t)
	c.awaitLeader(t)
	m.terminate(t)
	await(t).Eventually(m.done).Should(BeClosed())
	if m.err != nil {
		t.Errorf("it ended with %v", m.err)
	}
	var lease *coordinationv1.Lease
	lease, err := c.lease(t.Context())
	must(t, err)
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		t.Errorf("the lease is still held by %s", *h)
	}
}
