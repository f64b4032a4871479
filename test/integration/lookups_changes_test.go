package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// writes are the changes of one object, which have the numbers 0, 1, 2 and so on in a label.
type writes struct {
	mu       sync.Mutex
	finished []time.Time // by number
}

func (w *writes) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = append(w.finished, time.Now())
}

// after returns when the change after one was finished; false if there was none.
func (w *writes) after(number int) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number+1 >= len(w.finished) {
		return time.Time{}, false
	}
	return w.finished[number+1], true
}

// TestLookupsDuringChanges changes objects up to 500 times a second, as far as the machine can, while requests look
// them up. No answer lacks a change that is older than the age that the replica has reported before the request, and
// when nothing changes, every answer is that of the last change.
func TestLookupsDuringChanges(t *testing.T) {
	const objects, requests = 8, 400
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.mayLookUp(t, "", "limitranges")
	all := make([]*writes, objects)
	for i := range all {
		all[i] = &writes{}
		stored := labelledLimits(namespace, fmt.Sprint("o", i), fmt.Sprint("v", i))
		stored.Labels["number"] = "0"
		c.create(t, stored)
		all[i].add()
	}
	const name = "looks-up-numbers"
	numbers := lookingUp(v1alpha1.Lookup{Resource: lookupResource("", "v1", "limitranges"), Value: "stored.metadata.labels.number"})
	c.enforce(t, newPolicy(name, namespace, numbers, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations[0].MessageExpression = `"number " + lookups.found[0]`
	}))
	c.awaitVerdict(t, namespace, "v0", name, "number 0")

	ctx, stop := context.WithCancel(t.Context())
	began := time.Now()
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() { c.number(ctx, t, namespace, i, all[i], time.Second*objects/500) })
	}
	for i := range requests {
		w := all[i%objects]
		before := time.Now()
		age := m.series(t, `ostiary_lookup_age_seconds{resource="limitranges.v1."}`)
		known := before.Add(-time.Duration(age * float64(time.Second)))
		number := c.numberOf(t, namespace, i%objects)
		if next, ok := w.after(number); ok && next.Before(known) {
			t.Fatalf("the answer has number %d, and the change after it was finished %s before the age of %.3fs", number, known.Sub(next), age)
		}
	}
	stop()
	running.Wait()
	elapsed := time.Since(began)
	changes := 0
	for i, w := range all {
		last := len(w.finished) - 1
		changes += last
		NewWithT(t).Eventually(func() int { return c.numberOf(t, namespace, i) }).WithTimeout(deadline).Should(Equal(last))
	}
	t.Logf("%d changes, %.0f a second, during %d requests", changes, float64(changes)/elapsed.Seconds(), requests)
	if changes < requests {
		t.Errorf("%d changes during %d requests: want more changes than requests", changes, requests)
	}
}

// number changes the number of an object until ctx ends, at most once in an interval.
func (c *cluster) number(ctx context.Context, t *testing.T, namespace string, object int, w *writes, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		stored := labelledLimits(namespace, fmt.Sprint("o", object), "")
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"number":"%d"}}}`, n)
		if err := c.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Errorf("changing object %d: %v", object, err)
			return
		}
		w.add()
	}
}

// numberOf returns the number of an object in the answer to a request.
func (c *cluster) numberOf(t *testing.T, namespace string, object int) int {
	t.Helper()
	err := c.probe(t.Context(), namespace, fmt.Sprint("v", object))
	if err == nil {
		t.Fatal("a request is allowed")
	}
	_, text, _ := strings.Cut(err.Error(), "denied request: number ")
	number, parseErr := strconv.Atoi(text)
	if parseErr != nil {
		t.Fatalf("unexpected answer: %v", err)
	}
	return number
}
