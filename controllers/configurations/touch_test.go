package configurations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// touchClient is a client that records touches with their resource version. Touches are
// sent in parallel.
type touchClient struct {
	client.Client
	err  error
	mu   sync.Mutex
	sent []string
}

func (c *touchClient) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	object := config.(interface {
		GetName() string
		GetResourceVersion() string
		GetAnnotations() map[string]string
	})
	if version := object.GetAnnotations()[registration.AnnotationTouched]; version != "" && version == object.GetResourceVersion() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, object.GetName()+" "+version)
	}
	return c.err
}

// withBundle adds a webhook with a CA bundle to a configuration.
func withBundle(c registration.Configuration, bundle string) registration.Configuration {
	config, _ := c.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	config.Webhooks = []admissionregistrationv1.ValidatingWebhook{
		{Name: "w", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(bundle)}},
	}
	return config
}

// Configurations whose compiled form may be stale are touched after the debounce,
// and no others.
func TestTouch(t *testing.T) {
	gone := errors.New("the API server is away")
	changed := apierrors.NewConflict(schema.GroupResource{}, "a", nil)
	type event struct {
		after  time.Duration // since the previous event
		write  string        // members that are written
		create bool          // the write creates the configuration
		delete bool          // the configuration is found to be gone
		bundle string        // previous bundle
		edited bool          // the observed configuration has another client's edit
		err    error         // of a touch
	}
	tests := map[string]struct {
		events []event
		want   []string
	}{
		"written once": {
			events: []event{{write: "x"}, {after: time.Minute}}},
		"created": {
			events: []event{{create: true, write: "x"}, {after: time.Minute}}, want: []string{"a 7"}},
		"created again long after its deletion": {
			events: []event{{write: "x"}, {delete: true}, {after: time.Minute}, {create: true, write: "x"}}, want: []string{"a 7"}},
		"created again after its deletion": {
			events: []event{{write: "x"}, {delete: true}, {after: time.Second, create: true, write: "y"}, {after: debounce}}, want: []string{"a 7"}},
		"created again after its deletion, and not yet": {
			events: []event{{write: "x"}, {delete: true}, {after: time.Second, create: true, write: "y"}, {after: debounce - time.Millisecond}}},
		"written again long after": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x,y"}, {after: debounce}}},
		"with changed calls": {
			events: []event{{write: "x", bundle: "another"}, {after: debounce}, {after: time.Minute}}, want: []string{"a 7"}},
		"with changed calls, then unchanged": {
			events: []event{
				{write: "x", bundle: "another"}, {after: time.Second, write: "x,y"}, {after: debounce - time.Second},
			}, want: []string{"a 7"}},
		"not yet": {
			events: []event{{write: "x", bundle: "another"}, {after: debounce - time.Millisecond}}},
		"repaired": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: debounce}}, want: []string{"a 7"}},
		"repaired each second": {
			events: []event{
				{write: "x"}, {after: time.Minute, write: "x"}, {after: time.Second, write: "x"}, {after: time.Second, write: "x"},
				{after: debounce},
			}, want: []string{"a 7"}},
		"edited since, and not repaired yet": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: debounce, edited: true}, {after: time.Minute}}},
		"written by another client just now": {
			events: []event{
				{write: "x"}, {after: time.Minute, write: "x"}, {after: debounce, err: changed}, {after: time.Minute},
			}, want: []string{"a 7"}},
		"tried again": {
			events: []event{
				{write: "x"}, {after: time.Minute, write: "x"}, {after: debounce, err: gone}, {after: time.Second},
				{after: time.Minute},
			}, want: []string{"a 7", "a 7"}},
		"changed once more": {
			events: []event{
				{write: "x", bundle: "another"}, {after: debounce}, {after: time.Second, write: "x,y", bundle: "a third"},
				{after: debounce},
			}, want: []string{"a 7", "a 7"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
			api := &touchClient{}
			leading := newTestTerm(api, clock)
			clock.SetTime(clock.Now().Add(time.Minute))
			var now registration.Configuration
			for i, e := range tt.events {
				clock.SetTime(clock.Now().Add(e.after))
				switch {
				case e.delete:
					leading.forget(registration.KeyOf(now))
					leading.recordDeletions(nil)
					continue
				case e.write != "":
					now = withBundle(newConfiguration("a", e.write), "")
					now.SetResourceVersion("7")
					var had registration.Configuration
					if !e.create {
						had = withBundle(newConfiguration("a", e.write), e.bundle)
					}
					leading.recordWrite(had, withBundle(newConfiguration("a", e.write), ""), now)
				}
				leading.recordDeletions(map[registration.Key]bool{registration.KeyOf(now): true})
				observed := []registration.Configuration{now}
				switch {
				case e.edited:
					observed[0] = newConfiguration("a", "none of them")
				case e.create:
					observed = nil // the cache follows
				}
				p := newPass(observed)
				api.err = e.err
				if err := leading.touch(t.Context(), p); errors.Is(err, gone) != errors.Is(e.err, gone) {
					t.Fatalf("event %d: error %v", i, err)
				}
				if due := len(leading.touchAt) > 0 && e.err == nil; due != (p.requeueAfter > 0) {
					t.Errorf("event %d: the next pass is in %s, although it is due: %t", i, p.requeueAfter, due)
				}
			}
			if diff := cmp.Diff(tt.want, api.sent); diff != "" {
				t.Errorf("touched (-want +got):\n%s", diff)
			}
		})
	}
}

// The leader does not know what was deleted before its term.
func TestCreationsAtTheStartOfATerm(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	leading := newTestTerm(nil, clock)
	c := newConfiguration("a", "x")
	if at := leading.touchDue(nil, c); !at.Equal(clock.Now().Add(debounce)) {
		t.Errorf("touched after %s, want %s", at.Sub(clock.Now()), debounce)
	}
	clock.SetTime(clock.Now().Add(debounce + time.Millisecond))
	if at := leading.touchDue(nil, c); !at.Equal(clock.Now()) {
		t.Errorf("touched after %s, want at once", at.Sub(clock.Now()))
	}
}

// A deleted configuration is not touched.
func TestDeletedIsNotTouched(t *testing.T) {
	leading := newTestTerm(&touchClient{}, clocktesting.NewFakePassiveClock(time.Now()))
	c := newConfiguration("a", "x")
	leading.recordWrite(nil, c, c)
	leading.recordWrite(nil, c, c)
	leading.forget(registration.KeyOf(c))
	if err := leading.touch(t.Context(), newPass(nil)); err != nil || len(leading.touchAt) > 0 {
		t.Errorf("error %v, %d to touch", err, len(leading.touchAt))
	}
}

// Touches are spread over several passes, so that they do not delay repairs.
func TestTouchesAreLimitedPerPass(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	api := &touchClient{}
	leading := newTestTerm(api, clock)
	var all []registration.Configuration
	for i := range 2*writers + 1 {
		c := newConfiguration(fmt.Sprintf("c-%d", i), "x")
		c.SetResourceVersion("7")
		leading.recordWrite(nil, c, c)
		leading.recordWrite(nil, c, c)
		all = append(all, c)
	}
	clock.SetTime(clock.Now().Add(debounce))
	for pass, want := range []int{writers, 2 * writers, 2*writers + 1} {
		p := newPass(all)
		if err := leading.touch(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if len(api.sent) != want || len(leading.touchAt) > 0 != (p.requeueAfter > 0) {
			t.Errorf("pass %d: %d are touched, want %d; the next is in %s", pass, len(api.sent), want, p.requeueAfter)
		}
	}
}
