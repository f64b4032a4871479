package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// statusWatch sees every status that is written while the tests run, and
// remembers those that break the rules of kstatus.
type statusWatch struct {
	mu       sync.Mutex
	seen     int
	last     map[types.UID]*v1alpha1.WebhookPolicy
	problems []string
}

// watchStatuses watches until ctx ends.
func watchStatuses(ctx context.Context, c client.WithWatch) *statusWatch {
	s := &statusWatch{last: map[types.UID]*v1alpha1.WebhookPolicy{}}
	go func() {
		for ctx.Err() == nil {
			// A watch without a version begins with what there is.
			w, err := c.Watch(ctx, &v1alpha1.WebhookPolicyList{})
			if err != nil {
				continue
			}
			for event := range w.ResultChan() {
				if p, ok := event.Object.(*v1alpha1.WebhookPolicy); ok && event.Type != watch.Deleted {
					s.observe(p)
				}
			}
			w.Stop()
		}
	}()
	return s
}

// check fails the test at its end if a rule was broken meanwhile.
func (s *statusWatch) check(t *testing.T) {
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, problem := range s.problems {
			t.Errorf("kstatus: %s", problem)
		}
		s.problems = nil
	})
}

func (s *statusWatch) observe(p *v1alpha1.WebhookPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last[p.UID]
	s.last[p.UID] = p
	s.seen++
	for _, problem := range append(statusProblems(p), transitionProblems(before, p)...) {
		s.problems = append(s.problems, fmt.Sprintf("policy %s at version %s: %s", p.Name, p.ResourceVersion, problem))
	}
}

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// statusProblems says what is wrong with one status by itself.
func statusProblems(p *v1alpha1.WebhookPolicy) []string {
	var out []string
	wrong := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(p.Status.Conditions) == 0 { // not written yet; kstatus takes equal generations for ready
		if p.Status.ObservedGeneration != -1 {
			wrong("there are no conditions, and observedGeneration is %d instead of -1", p.Status.ObservedGeneration)
		}
		return out
	}
	if o := p.Status.ObservedGeneration; o < 1 || o > p.Generation {
		wrong("observedGeneration is %d, of generation %d", o, p.Generation)
	}
	var kinds []string
	for _, c := range p.Status.Conditions {
		kinds = append(kinds, c.Type)
		if c.ObservedGeneration != p.Status.ObservedGeneration {
			wrong("condition %s is about generation %d, the status about %d", c.Type, c.ObservedGeneration, p.Status.ObservedGeneration)
		}
		if !camelCase.MatchString(c.Reason) {
			wrong("condition %s has the reason %q", c.Type, c.Reason)
		}
		if c.Message == "" || c.LastTransitionTime.IsZero() {
			wrong("condition %s lacks a message or a transition time", c.Type)
		}
	}
	slices.Sort(kinds)
	if len(slices.Compact(kinds)) != len(p.Status.Conditions) {
		wrong("a condition stands twice: %v", kinds)
	}
	return append(out, contradictions(p)...)
}

// contradictions between the conditions of one status.
func contradictions(p *v1alpha1.WebhookPolicy) []string {
	var out []string
	ready := meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
	if meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady) == nil {
		out = append(out, "there is no condition Ready")
	}
	abnormal := 0
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil {
			continue
		}
		abnormal++
		if c.Status != metav1.ConditionTrue {
			out = append(out, fmt.Sprintf("%s is there and %s", kind, c.Status))
		}
	}
	if ready && abnormal > 0 || !ready && abnormal != 1 {
		out = append(out, fmt.Sprintf("Ready is %t beside %d of Reconciling and Stalled", ready, abnormal))
	}
	parts := []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionRegistered}
	// A status of an earlier generation may not have the condition of this one.
	if p.Status.ObservedGeneration == p.Generation {
		parts = append(parts, v1alpha1.ConditionReachable)
	}
	for _, part := range parts {
		if ready && !meta.IsStatusConditionTrue(p.Status.Conditions, part) {
			out = append(out, "Ready is true and "+part+" is not")
		}
	}
	if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionRegistered) && len(p.Status.Webhooks) == 0 {
		out = append(out, "Registered is true and no webhook is named")
	}
	return out
}

// transitionProblems says what is wrong with a status after the one before it.
func transitionProblems(before, after *v1alpha1.WebhookPolicy) []string {
	if before == nil {
		return nil
	}
	var out []string
	if after.Status.ObservedGeneration < before.Status.ObservedGeneration {
		out = append(out, fmt.Sprintf("observedGeneration went back from %d to %d", before.Status.ObservedGeneration,
			after.Status.ObservedGeneration))
	}
	for _, c := range after.Status.Conditions {
		was := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		switch {
		case was == nil:
		case was.Status == c.Status && !was.LastTransitionTime.Equal(&c.LastTransitionTime):
			out = append(out, c.Type+" has a new transition time and the old status")
		case c.LastTransitionTime.Before(&was.LastTransitionTime):
			out = append(out, c.Type+" has a transition time before the last one")
		}
	}
	return out
}

// A checker that finds nothing would make every test of a status worthless.
func TestStatusRulesAreChecked(t *testing.T) {
	now := metav1.Now()
	cond := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Because", Message: "so", ObservedGeneration: 1, LastTransitionTime: now}
	}
	accepted, registered := cond(v1alpha1.ConditionAccepted, metav1.ConditionTrue), cond(v1alpha1.ConditionRegistered, metav1.ConditionTrue)
	ready, reachable := cond(v1alpha1.ConditionReady, metav1.ConditionTrue), cond(v1alpha1.ConditionReachable, metav1.ConditionTrue)
	tests := map[string]struct {
		edit func(*v1alpha1.WebhookPolicy)
		want int
	}{
		"as it should be": {edit: func(*v1alpha1.WebhookPolicy) {}},
		"ready and stalled": {edit: func(p *v1alpha1.WebhookPolicy) {
			p.Status.Conditions = append(p.Status.Conditions, cond(v1alpha1.ConditionStalled, metav1.ConditionTrue))
		}, want: 1},
		"reconciling is false": {edit: func(p *v1alpha1.WebhookPolicy) {
			p.Status.Conditions = append(p.Status.Conditions, cond(v1alpha1.ConditionReconciling, metav1.ConditionFalse))
		}, want: 2},
		"not ready, no reason": {edit: func(p *v1alpha1.WebhookPolicy) { p.Status.Conditions[2].Status = metav1.ConditionFalse }, want: 1},
		"no generation":        {edit: func(p *v1alpha1.WebhookPolicy) { p.Status.ObservedGeneration = 0 }, want: 5},
		"odd reason":           {edit: func(p *v1alpha1.WebhookPolicy) { p.Status.Conditions[0].Reason = "not so" }, want: 1},
		"not accepted":         {edit: func(p *v1alpha1.WebhookPolicy) { p.Status.Conditions[0].Status = metav1.ConditionFalse }, want: 1},
		"no status":            {edit: func(p *v1alpha1.WebhookPolicy) { p.Status = v1alpha1.WebhookPolicyStatus{} }, want: 1},
		"no webhooks":          {edit: func(p *v1alpha1.WebhookPolicy) { p.Status.Webhooks = nil }, want: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			p.Status = v1alpha1.WebhookPolicyStatus{
				ObservedGeneration: 1,
				Conditions:         []metav1.Condition{accepted, registered, ready, reachable},
				Webhooks:           []v1alpha1.WebhookReference{{Kind: "ValidatingWebhookConfiguration", Configuration: "a", Webhook: "b"}},
			}
			tt.edit(p)
			if got := statusProblems(p); len(got) != tt.want {
				t.Errorf("problems %q, want %d", got, tt.want)
			}
		})
	}
}
