package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	deny  = admissionregistrationv1.Deny
	warn  = admissionregistrationv1.Warn
	audit = admissionregistrationv1.Audit
)

func start() time.Time { return time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC) }

func does(actions ...admissionregistrationv1.ValidationAction) []admissionregistrationv1.ValidationAction {
	return actions
}

func hours(n int64) int64 { return n * 3600 }

// testPolicy has three steps: an hour of Audit, two of Warn in the namespaces with tier=dev, and one of Warn.
func testPolicy() *v1alpha1.WebhookPolicy {
	dev := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "dev"}}
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid", Generation: 1},
		Spec: v1alpha1.WebhookPolicySpec{
			Validations: []v1alpha1.Validation{{Expression: "object.spec.ok"}},
			Bindings: []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{
				Steps: []v1alpha1.RolloutStep{
					{Name: "learn", ValidationActions: does(audit), MinDurationSeconds: hours(1)},
					{Name: "warn-dev", ValidationActions: does(warn), MinDurationSeconds: hours(2), MaxViolations: new(int64(0)), NamespaceSelector: dev},
					{Name: "warn", ValidationActions: does(warn), MinDurationSeconds: hours(1), MaxViolations: new(int64(5))},
				},
				Final: v1alpha1.RolloutFinal{ValidationActions: does(deny)},
			}}},
		},
	}
}

// world is a policy with what happens to it. A new one has complete evidence without violations.
type world struct {
	now    time.Time
	policy *v1alpha1.WebhookPolicy
	facts  Facts
	// objects and requests are those of every step. reportedUntil is when replicas have reported; the zero value means now.
	objects, requests Evidence
	reportedUntil     time.Time
	events            []string
	requeue           time.Duration
	writes            int
}

func newWorld() *world { return &world{now: start(), policy: testPolicy()} }

func (w *world) evidence(*v1alpha1.Binding, *v1alpha1.BindingStatus, *v1alpha1.RolloutStep) (objects, requests Evidence) {
	objects, requests = w.objects, w.requests
	requests.Until = w.now
	if !w.reportedUntil.IsZero() {
		requests.Until = w.reportedUntil
	}
	return objects, requests
}

// reconcile makes one decision, and records it as the status of the policy.
func (w *world) reconcile() {
	f := w.facts
	f.Now, f.Policy = w.now, w.policy
	states, events, requeue := All(f, w.evidence)
	w.requeue = requeue
	if cmp.Diff(states, w.policy.Status.Bindings) != "" {
		w.writes++
	}
	w.policy.Status.Bindings = states
	for _, e := range events {
		w.events = append(w.events, e.Reason)
	}
}

func (w *world) state() v1alpha1.BindingStatus { return StateOf(w.policy.Status.Bindings, "b") }

func (w *world) rollout() *v1alpha1.Rollout { return w.policy.Spec.Bindings[0].Rollout }

// describe returns the state of the binding in a line.
func (w *world) describe() string {
	s := w.state()
	out := s.Action
	if s.Paused {
		out += " paused"
	}
	if s.HeldBy != "" {
		out += " held: " + s.HeldBy
	}
	return out
}

// moment is an event, and the state after it.
type moment struct {
	after time.Duration // since the moment before
	do    func(*world)  // nil if only time passes
	want  string        // as describe returns it
	event string        // the reason of the last event; empty for none
}

type timeline struct {
	name    string
	moments []moment
}

func (tl *timeline) run(t *testing.T) {
	w := newWorld()
	for i, m := range tl.moments {
		w.now = w.now.Add(m.after)
		if m.do != nil {
			m.do(w)
		}
		w.events = nil
		w.reconcile()
		if diff := cmp.Diff(m.want, w.describe()); diff != "" {
			t.Errorf("moment %d: state (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(m.event, strings.Join(w.events, ",")); diff != "" {
			t.Errorf("moment %d: events (-want +got):\n%s", i, diff)
		}
		before := w.state()
		w.reconcile()
		if diff := cmp.Diff(before, w.state()); diff != "" {
			t.Errorf("moment %d: a second decision at the same time changes the state (-first +second):\n%s", i, diff)
		}
	}
}

// command sets an annotation for the current state.
func command(action Action) func(*world) {
	return func(w *world) {
		w.policy.Annotations = map[string]string{Annotation: Command{Action: action, Binding: "b", Token: w.state().Token}.String()}
	}
}

// edit changes the spec, as an update of the policy does.
func edit(change func(*spec)) func(*world) {
	return func(w *world) {
		change(&w.policy.Spec)
		w.policy.Generation++
	}
}

type spec = v1alpha1.WebhookPolicySpec

func expression(text string) func(*world) {
	return edit(func(s *spec) { s.Validations[0].Expression = text })
}

func objects(n int64) func(*world) { return func(w *world) { w.objects.Count = n } }

func requests(n int64) func(*world) { return func(w *world) { w.requests.Count = n } }

func loseStatus(w *world) {
	w.policy.Status = v1alpha1.WebhookPolicyStatus{}
	w.facts.Lost = "its status was lost"
}

func objectsHeld(n, limit int) string {
	return fmt.Sprintf(" held: %d stored objects violate the policy, and maxViolations is %d", n, limit)
}

func requestsHeld(n, limit int) string {
	return fmt.Sprintf(" held: %d owners or objects have had requests that violate the policy, and maxViolations is %d", n, limit)
}
