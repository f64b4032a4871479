package status

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/rollout"
)

// rollingOut returns a policy that is Ready, with a rollout of an hour of Audit before Deny.
func rollingOut(states ...v1alpha1.BindingStatus) *v1alpha1.WebhookPolicy {
	p := newPolicy()
	p.UID = "uid"
	p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{
		Steps: []v1alpha1.RolloutStep{{
			Name: "learn", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
			MinDurationSeconds: 3600, MaxViolations: new(int64(0)),
		}},
		Final: v1alpha1.RolloutFinal{ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}}}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	p.Status.Bindings = states
	return p
}

// staging is a Reconciler whose decisions a test records as statuses.
type staging struct {
	*Reconciler
	clock *clocktesting.FakePassiveClock
	in    inputs
}

func newStaging(found rollout.Evidence) *staging {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	s := &staging{Reconciler: &Reconciler{Clock: clock}, clock: clock}
	s.in.evidence = func(_ context.Context, _ *v1alpha1.WebhookPolicy, now time.Time) rollout.Source {
		return func(*v1alpha1.Binding, *v1alpha1.BindingStatus, *v1alpha1.RolloutStep) (objects, requests rollout.Evidence) {
			return found, rollout.Evidence{Until: now}
		}
	}
	return s
}

// decide decides after some time, and records the result.
func (s *staging) decide(t *testing.T, p *v1alpha1.WebhookPolicy, after time.Duration) (reasons []string) {
	t.Helper()
	s.clock.SetTime(s.clock.Now().Add(after))
	next := s.nextStages(t.Context(), p, &s.in)
	s.remember(p, &next)
	p.Status.Bindings = next.bindings
	for _, e := range next.events {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

func TestStages(t *testing.T) {
	found := rollout.Evidence{Count: 3}
	for name, tc := range map[string]struct {
		run         func(*staging, *v1alpha1.WebhookPolicy)
		after       time.Duration
		evidence    rollout.Evidence
		wantReasons []string
		wantAction  string
		wantHeld    string
	}{
		"a new policy": {wantReasons: []string{rollout.ReasonStarted}, wantAction: "Audit 1/1"},
		"with the flag": {run: func(s *staging, _ *v1alpha1.WebhookPolicy) { s.in.assumeComplete = true },
			wantReasons: []string{rollout.ReasonCompleted}, wantAction: "Deny"},
		"the time has passed": {run: begin(t), after: time.Hour, wantReasons: []string{rollout.ReasonCompleted}, wantAction: "Deny"},
		"the time has not":    {run: begin(t), after: time.Minute, wantAction: "Audit 1/1"},
		"violations": {run: begin(t), after: time.Hour, evidence: found,
			wantReasons: []string{rollout.ReasonHeld}, wantAction: "Audit 1/1", wantHeld: "3 stored objects"},
		"no Source has evidence": {run: func(s *staging, p *v1alpha1.WebhookPolicy) { begin(t)(s, p); s.in.evidence = nil }, after: 2 * time.Hour,
			wantReasons: []string{rollout.ReasonHeld}, wantAction: "Audit 1/1", wantHeld: "not all replicas have reported"},
		"the policy is not Ready": {
			run: func(s *staging, p *v1alpha1.WebhookPolicy) {
				begin(t)(s, p)
				p.Status.Conditions[0].Status = metav1.ConditionFalse
			},
			after: 2 * time.Hour, wantReasons: []string{rollout.ReasonHeld}, wantAction: "Audit 1/1", wantHeld: "not Ready",
		},
		"this leader has seen the lost state": {
			run:         func(s *staging, p *v1alpha1.WebhookPolicy) { begin(t)(s, p); p.Status.Bindings = nil },
			wantReasons: []string{rollout.ReasonRestarted}, wantAction: "Audit 1/1",
		},
		"the policy was created again": {
			run:         func(s *staging, p *v1alpha1.WebhookPolicy) { begin(t)(s, p); p.UID, p.Status.Bindings = "other", nil },
			wantReasons: []string{rollout.ReasonRestarted}, wantAction: "Audit 1/1",
		},
		"the status was written without a state": {
			run:         func(_ *staging, p *v1alpha1.WebhookPolicy) { p.Generation, p.Status.ObservedGeneration = 4, 4 },
			wantReasons: []string{rollout.ReasonRestarted}, wantAction: "Audit 1/1",
		},
		"another binding of a known policy": {
			run: func(s *staging, p *v1alpha1.WebhookPolicy) {
				begin(t)(s, p)
				p.Spec.Bindings[0].Name, p.Generation = "c", 5
			},
			wantReasons: []string{rollout.ReasonStarted}, wantAction: "Audit 1/1",
		},
		"the rollout is removed": {run: func(s *staging, p *v1alpha1.WebhookPolicy) { begin(t)(s, p); p.Spec.Bindings[0].Rollout = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newStaging(tc.evidence), rollingOut()
			p.Generation = 3
			if tc.run != nil {
				tc.run(s, p)
			}
			reasons := s.decide(t, p, tc.after)
			if diff := cmp.Diff(tc.wantReasons, reasons); diff != "" {
				t.Errorf("reasons of events (-want +got):\n%s", diff)
			}
			var got v1alpha1.BindingStatus
			if len(p.Status.Bindings) > 0 {
				got = p.Status.Bindings[0]
			}
			if got.Action != tc.wantAction || !strings.Contains(got.HeldBy, tc.wantHeld) {
				t.Errorf("got %q, held by %q, want %q, held by %q", got.Action, got.HeldBy, tc.wantAction, tc.wantHeld)
			}
		})
	}
}

// begin begins the first step.
func begin(t *testing.T) func(*staging, *v1alpha1.WebhookPolicy) {
	return func(s *staging, p *v1alpha1.WebhookPolicy) { s.decide(t, p, 0) }
}

// TestNumbersAreRefreshed: the numbers that hold a step are written at most once in refreshInterval.
func TestNumbersAreRefreshed(t *testing.T) {
	p := rollingOut()
	s := newStaging(rollout.Evidence{Count: 3})
	s.decide(t, p, 0)
	s.decide(t, p, time.Hour)
	first := p.Status.Bindings[0].HeldBy
	s.in.evidence = newStaging(rollout.Evidence{Count: 4}).in.evidence
	s.decide(t, p, refreshInterval-time.Second)
	if got := p.Status.Bindings[0].HeldBy; got != first {
		t.Errorf("%q is written too early", got)
	}
	s.decide(t, p, time.Second)
	if got := p.Status.Bindings[0].HeldBy; !strings.HasPrefix(got, "4 stored objects") {
		t.Errorf("%q is not replaced", got)
	}
}

func TestRolledOutCondition(t *testing.T) {
	at := &metav1.Time{Time: time.Unix(1_000_000, 0)}
	final, inStep := v1alpha1.BindingStatus{Name: "b", Final: true}, v1alpha1.BindingStatus{Name: "b", Step: "learn", Next: at}
	held, paused := inStep, inStep
	held.HeldBy, paused.Paused = "3 stored objects", true
	registered := observation{registered: true}
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	for name, tc := range map[string]struct {
		before, next []v1alpha1.BindingStatus
		observed     observation
		status       metav1.ConditionStatus
		reason       string
		message      string
	}{
		"no rollout": {},
		"a step": {next: []v1alpha1.BindingStatus{inStep},
			status: no, reason: ReasonRollingOut, message: "until 1970-01-12T13:46:40Z at least"},
		"a paused step": {next: []v1alpha1.BindingStatus{paused}, status: no, reason: ReasonRollingOut, message: "paused"},
		"a held step": {next: []v1alpha1.BindingStatus{final, held},
			status: no, reason: ReasonRolloutHeld, message: "3 stored objects"},
		"the final action is new": {next: []v1alpha1.BindingStatus{final}, observed: registered,
			status: no, reason: ReasonRollingOut, message: "being registered"},
		"it is not registered": {before: []v1alpha1.BindingStatus{final}, next: []v1alpha1.BindingStatus{final},
			status: no, reason: ReasonRollingOut, message: "being registered"},
		"the final action": {before: []v1alpha1.BindingStatus{final}, next: []v1alpha1.BindingStatus{final}, observed: registered,
			status: yes, reason: ReasonComplete},
		"many steps are not described": {next: []v1alpha1.BindingStatus{inStep, inStep, inStep, inStep, inStep, inStep, inStep},
			status: no, reason: ReasonRollingOut, message: "; and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			got := rolledOutCondition(rollingOut(tc.before...), &tc.observed, &stages{bindings: tc.next})
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestActionsOfSteps: the status describes what the bindings do in the state that is written with it.
func TestActionsOfSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		next          v1alpha1.BindingStatus
		actions       string
		failurePolicy admissionregistrationv1.FailurePolicyType
		message       string
	}{
		"a step": {v1alpha1.BindingStatus{Name: "b", Step: "learn", Next: &metav1.Time{}}, "Audit 1/1",
			admissionregistrationv1.Ignore, "are recorded"},
		"the final action": {v1alpha1.BindingStatus{Name: "b", Final: true}, "Deny", admissionregistrationv1.Fail, "are denied"},
	} {
		t.Run(name, func(t *testing.T) {
			p := rollingOut()
			got := observe(p, nil, inputs{}, &stages{bindings: []v1alpha1.BindingStatus{tc.next}}, metav1.Now())
			if got.Actions != tc.actions || got.FailurePolicy != tc.failurePolicy {
				t.Errorf("got actions %q and failurePolicy %s, want %q and %s", got.Actions, got.FailurePolicy, tc.actions, tc.failurePolicy)
			}
			shown, _ := (&stages{bindings: []v1alpha1.BindingStatus{tc.next}}).withStages(p)
			if text := enforcedMessage(shown); !strings.Contains(text, tc.message) {
				t.Errorf("message %q, want %q", text, tc.message)
			}
		})
	}
}

func TestEventsOfStages(t *testing.T) {
	recorder := events.NewFakeRecorder(2)
	(&Reconciler{Events: recorder}).recordStages(rollingOut(), []rollout.Event{
		{Reason: rollout.ReasonAdvanced, Message: "next"}, {Reason: rollout.ReasonHeld, Message: "held", IsWarning: true},
	})
	for _, want := range []string{"Normal RolloutAdvanced next", "Warning RolloutHeld held"} {
		if got := <-recorder.Events; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestStepsAreDecidedAgain: a step is decided again when it can end, unless a suspension ends before.
func TestStepsAreDecidedAgain(t *testing.T) {
	s := newStaging(rollout.Evidence{})
	suspended := rollingOut()
	suspended.Annotations = map[string]string{v1alpha1.AnnotationSuspendedUntil: s.clock.Now().Add(time.Minute).UTC().Format(time.RFC3339)}
	later := rollingOut()
	begins := s.clock.Now().Add(v1alpha1.MaxSuspension + time.Hour)
	later.Annotations = map[string]string{v1alpha1.AnnotationSuspendedUntil: begins.UTC().Format(time.RFC3339)}
	for name, tc := range map[string]struct {
		policy     *v1alpha1.WebhookPolicy
		step, want time.Duration
	}{
		"at rest":                          {rollingOut(), 0, 0},
		"a step":                           {rollingOut(), time.Hour, time.Hour},
		"a suspension":                     {suspended, 0, time.Minute},
		"a suspension that begins":         {later, 0, time.Hour},
		"a suspension that ends earlier":   {suspended, time.Hour, time.Minute},
		"a step that ends before the last": {suspended, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.requeue(tc.policy, v1alpha1.WebhookPolicyStatus{}, tc.step).RequeueAfter; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
