package configurations

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// announcing is a client that notes what is announced, and which version it was.
type announcing struct {
	client.Client
	err  error
	sent []string
}

func (a *announcing) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	c := config.(interface {
		GetName() string
		GetResourceVersion() string
		GetAnnotations() map[string]string
	})
	if version := c.GetAnnotations()[registration.AnnotationAnnounced]; version != "" && version == c.GetResourceVersion() {
		a.sent = append(a.sent, c.GetName()+" "+version)
	}
	return a.err
}

// trusting gives a configuration a webhook that is verified with a bundle.
func trusting(c registration.Configuration, bundle string) registration.Configuration {
	config, _ := c.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	config.Webhooks = []admissionregistrationv1.ValidatingWebhook{{Name: "w", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(bundle)}}}
	return config
}

// What API servers may have overtaken is written once more, when it has been left
// alone, and nothing else is.
func TestAnnounce(t *testing.T) {
	gone := errors.New("the API server is away")
	changed := apierrors.NewConflict(schema.GroupResource{}, "a", nil)
	type event struct {
		after  time.Duration // the one before
		write  string        // the members that it is written with
		bundle string        // what it had, where it has none now
		edited bool          // somebody else's edit is observed
		err    error         // of an announcement
	}
	tests := map[string]struct {
		events []event
		want   []string
	}{
		"written once": {
			events: []event{{write: "x"}, {after: time.Minute}}},
		"written anew long after": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x,y"}, {after: calm}}},
		"calling otherwise than before": {
			events: []event{{write: "x", bundle: "another"}, {after: calm}, {after: time.Minute}}, want: []string{"a 7"}},
		"calling otherwise, and not again": {
			events: []event{{write: "x", bundle: "another"}, {after: time.Second, write: "x,y"}, {after: calm - time.Second}}, want: []string{"a 7"}},
		"not yet": {
			events: []event{{write: "x", bundle: "another"}, {after: calm - time.Millisecond}}},
		"put right": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: calm}}, want: []string{"a 7"}},
		"put right each second": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: time.Second, write: "x"}, {after: time.Second, write: "x"}, {after: calm}}, want: []string{"a 7"}},
		"edited since, and not put right yet": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: calm, edited: true}, {after: time.Minute}}},
		"written by somebody just now": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: calm, err: changed}, {after: time.Minute}}, want: []string{"a 7"}},
		"tried again": {
			events: []event{{write: "x"}, {after: time.Minute, write: "x"}, {after: calm, err: gone}, {after: time.Second}, {after: time.Minute}}, want: []string{"a 7", "a 7"}},
		"changed once more": {
			events: []event{{write: "x", bundle: "another"}, {after: calm}, {after: time.Second, write: "x,y", bundle: "a third"}, {after: calm}}, want: []string{"a 7", "a 7"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
			api := &announcing{}
			r := &Reconciler{Client: api, Contests: NewContests(prometheus.NewRegistry()), Clock: clock}
			r.begin()
			var now registration.Configuration
			for i, e := range tt.events {
				clock.SetTime(clock.Now().Add(e.after))
				if e.write != "" {
					now = trusting(carrying("a", e.write), "")
					now.SetResourceVersion("7")
					var had registration.Configuration
					if e.bundle != "" {
						had = trusting(carrying("a", e.write), e.bundle)
					}
					r.remember(had, trusting(carrying("a", e.write), ""), now)
				}
				observed := now
				if e.edited {
					observed = carrying("a", "none of them")
				}
				p := newPass([]registration.Configuration{observed})
				api.err = e.err
				if err := r.announce(t.Context(), p); errors.Is(err, gone) != errors.Is(e.err, gone) {
					t.Fatalf("event %d: error %v", i, err)
				}
				if due := len(r.overtaken) > 0 && e.err == nil; due != (p.next > 0) {
					t.Errorf("event %d: the next pass is in %s, although it is due: %t", i, p.next, due)
				}
			}
			if diff := cmp.Diff(tt.want, api.sent); diff != "" {
				t.Errorf("announced (-want +got):\n%s", diff)
			}
		})
	}
}

// What was deleted is not announced.
func TestDeletedIsNotAnnounced(t *testing.T) {
	r := &Reconciler{Client: &announcing{}, Contests: NewContests(prometheus.NewRegistry()), Clock: clocktesting.NewFakePassiveClock(time.Now())}
	r.begin()
	c := carrying("a", "x")
	r.remember(nil, c, c)
	r.remember(nil, c, c)
	r.forget(keyOf(c))
	if err := r.announce(t.Context(), newPass(nil)); err != nil || len(r.overtaken) > 0 {
		t.Errorf("error %v, %d to announce", err, len(r.overtaken))
	}
}

// Many are announced in several passes, so that no repair waits for all of them.
func TestFewAreAnnouncedAtATime(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	api := &announcing{}
	r := &Reconciler{Client: api, Contests: NewContests(prometheus.NewRegistry()), Clock: clock}
	r.begin()
	var all []registration.Configuration
	for i := range 2*writers + 1 {
		c := carrying(fmt.Sprintf("c-%d", i), "x")
		c.SetResourceVersion("7")
		r.remember(nil, c, c)
		r.remember(nil, c, c)
		all = append(all, c)
	}
	clock.SetTime(clock.Now().Add(calm))
	for pass, want := range []int{writers, 2 * writers, 2*writers + 1} {
		p := newPass(all)
		if err := r.announce(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if len(api.sent) != want || len(r.overtaken) > 0 != (p.next > 0) {
			t.Errorf("pass %d: %d are announced, want %d; the next is in %s", pass, len(api.sent), want, p.next)
		}
	}
}
