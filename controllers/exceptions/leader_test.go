package exceptions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
)

// statusClient is a client that can only apply statuses.
type statusClient struct {
	client.Client
	writer *statusWriter
}

// Status implements client.Client.
func (c statusClient) Status() client.SubResourceWriter { return c.writer }

// statusWriter notes the statuses that are applied, and fails for an exception.
type statusWriter struct {
	client.SubResourceWriter
	failing string

	mu      sync.Mutex
	reasons map[string]string // by namespace and name
	used    map[string]int64
}

// Apply implements client.SubResourceWriter.
func (c *statusWriter) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	u, ok := o.(interface{ GetName() string })
	if !ok || u.GetName() == c.failing {
		return errors.New("no answer")
	}
	object := o.(interface {
		UnstructuredContent() map[string]any
		SetResourceVersion(string)
	})
	e := &v1alpha1.WebhookPolicyException{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.UnstructuredContent(), e); err != nil {
		return err
	}
	object.SetResourceVersion("2000")
	c.mu.Lock()
	defer c.mu.Unlock()
	key := e.Namespace + "/" + e.Name
	c.reasons[key], c.used[key] = e.Status.Conditions[0].Reason, e.Status.Used
	return nil
}

func newTestLeader(s *Store) (*Leader, *statusWriter, *clientevents.FakeRecorder) {
	c := &statusWriter{reasons: map[string]string{}, used: map[string]int64{}}
	events := clientevents.NewFakeRecorder(100)
	l := &Leader{Client: statusClient{writer: c}, Store: s, Events: events, Log: logr.Discard(), totals: newTotals(nil)}
	l.tally.add(nil)
	return l, c, events
}

// An exception whose status cannot be written delays no other, and each status is written once.
func TestWriteAll(t *testing.T) {
	s := newTestStore(t, 4)
	s.putAll(t, raw("n", "a", 9), raw("n", "b", 8, `"expirationTime":"2027-03-01T00:00:00Z"`), raw("n", "c", 7), raw("n", "d", 6))
	l, client, events := newTestLeader(s)
	client.failing = "a"
	c := conditionsOf(s, time.Date(2027, 2, 28, 12, 0, 0, 0, time.UTC))
	c.policies["p"].Exceptions.MaxDurationSeconds = nil
	if more, err := l.writeAll(t.Context(), c); more || err == nil {
		t.Errorf("more: %t, error %v; want an error", more, err)
	}
	want := map[string]string{"n/b": ReasonEndsSoon, "n/c": ReasonApplied, "n/d": ReasonTooMany}
	if diff := cmp.Diff(want, client.reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if len(events.Events) != 1 {
		t.Errorf("%d events, want one", len(events.Events))
	}
	client.failing, client.reasons = "", map[string]string{}
	if _, err := l.writeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	if got := slices.Sorted(maps.Keys(client.reasons)); !slices.Equal(got, []string{"n/a"}) || len(events.Events) != 1 {
		t.Errorf("written again: %v, %d events", got, len(events.Events))
	}
}

// Many statuses are written in parts, those of uses after the others and not too many at once.
func TestWritesAreBounded(t *testing.T) {
	s := newTestStore(t, 1000)
	for i := range maxWrites + 1 {
		s.putAll(t, raw("n", fmt.Sprint("e", i), 1))
	}
	l, client, _ := newTestLeader(s)
	c := conditionsOf(s, time.Unix(1_800_000_000, 0))
	c.policies = nil // so that 100 exceptions do not limit each other
	for _, want := range []int{maxWrites, maxWrites + 1} {
		more, err := l.writeAll(t.Context(), c)
		if err != nil || more != (want == maxWrites) || len(client.reasons) != want {
			t.Errorf("wrote %d, more: %t, error %v; want %d", len(client.reasons), more, err, want)
		}
	}
	for i := range maxUsesWrites + 1 {
		l.tally.count(exceptions.Key{Namespace: "n", Name: fmt.Sprint("e", i)}, use{2, time.Unix(1_800_000_000, 0)})
	}
	client.used = map[string]int64{}
	for _, want := range []int{maxUsesWrites, maxUsesWrites + 1, maxUsesWrites + 1} {
		if _, err := l.writeAll(t.Context(), c); err != nil || len(client.used) != want {
			t.Errorf("wrote the uses of %d, error %v; want %d", len(client.used), err, want)
		}
	}
	for key, n := range client.used {
		if n != 2 {
			t.Errorf("%s has %d uses, want 2", key, n)
		}
	}
}
