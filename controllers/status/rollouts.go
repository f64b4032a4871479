package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/rollout"
)

const (
	// ReasonRollingOut means that a rollout is in a step before the final action.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutHeld means that a step of a rollout stays although its time has passed.
	ReasonRolloutHeld = rollout.ReasonHeld
	// refreshInterval is the time between two writes of the numbers that hold a step.
	refreshInterval = time.Minute
	// maxShownBindings is the number of bindings that the condition RolledOut describes.
	maxShownBindings = 5
)

// rolloutEvidence finds the evidence of the steps of a policy.
type rolloutEvidence func(ctx context.Context, p *v1alpha1.WebhookPolicy, now time.Time) rollout.Source

// Rollouts is the Source for the evidence of rollouts. Rollouts without a recorded state begin with the final action if
// assumeComplete is true.
func Rollouts(of rolloutEvidence, assumeComplete bool) Source {
	never := func(context.Context) <-chan struct{} { return nil } // held steps are decided again after a time
	return Source{subscribe: never, observe: func(_ context.Context, _ *v1alpha1.WebhookPolicy, in *inputs) {
		in.evidence, in.assumeComplete = of, assumeComplete
	}}
}

// stages are the next states of the rollouts of a policy.
type stages struct {
	bindings []v1alpha1.BindingStatus
	events   []rollout.Event
	requeue  time.Duration
}

// remembered are the states that this leader has seen last, by the name of a policy: those of a policy that was deleted and
// created again, or whose status was lost.
type remembered struct {
	uid       types.UID
	bindings  []v1alpha1.BindingStatus
	refreshed time.Time // when the numbers of a step that is held were written last
}

// nextStages decides about the rollouts of a policy, which has the last status.
func (r *Reconciler) nextStages(ctx context.Context, p *v1alpha1.WebhookPolicy, in *inputs) (out stages) {
	if !rollout.Has(&p.Spec) {
		r.stages.Delete(p.Name)
		return out
	}
	now := r.Clock.Now()
	before, _ := r.stages.Load(p.Name)
	known, _ := before.(remembered)
	f := rollout.Facts{Now: now, Policy: p, AssumeComplete: in.assumeComplete, Refresh: now.Sub(known.refreshed) >= refreshInterval}
	f.Lost, f.Known = lostBefore(p, known)
	if is := ready(p.Status); is.Status != metav1.ConditionTrue {
		f.Blocked = "the policy is not Ready: " + is.Message
	}
	var evidence rollout.Source
	if in.evidence != nil {
		evidence = in.evidence(ctx, p, now)
	}
	out.bindings, out.events, out.requeue = rollout.All(f, evidence)
	return out
}

// lostBefore returns why a binding without a state must have had one, and the states that are known, of all bindings with nil.
func lostBefore(p *v1alpha1.WebhookPolicy, known remembered) (why string, bindings []v1alpha1.BindingStatus) {
	switch {
	case known.uid != "" && known.uid != p.UID:
		return "the policy was deleted and created again", known.bindings
	case known.uid != "":
		return "its recorded state was lost", known.bindings
	case p.Status.ObservedGeneration == p.Generation:
		return "its status has no state of the rollout", nil
	}
	return "", nil
}

// remember keeps the states that are written now.
func (r *Reconciler) remember(p *v1alpha1.WebhookPolicy, next *stages) {
	if len(next.bindings) == 0 {
		return
	}
	before, _ := r.stages.Load(p.Name)
	known, _ := before.(remembered)
	if !equality.Semantic.DeepEqual(p.Status.Bindings, next.bindings) {
		known.refreshed = r.Clock.Now()
	}
	r.stages.Store(p.Name, remembered{p.UID, next.bindings, known.refreshed})
}

// recordStages records the events of rollouts.
func (r *Reconciler) recordStages(p *v1alpha1.WebhookPolicy, events []rollout.Event) {
	for _, e := range events {
		kind := corev1.EventTypeNormal
		if e.IsWarning {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(p, nil, kind, e.Reason, "RollOut", "%s", eventMessage(e.Message))
	}
}

// withStages returns the policy with the states that are written now, and without rollouts: with the actions of its bindings.
// Its own status stays.
func (s *stages) withStages(p *v1alpha1.WebhookPolicy) (shown *v1alpha1.WebhookPolicy, actions string) {
	next := *p
	next.Status.Bindings = s.bindings
	actions = rollout.ActionsOf(&next)
	if len(s.bindings) == 0 {
		return p, actions
	}
	out := *rollout.InEffect(&next)
	out.Status = p.Status
	return &out, actions
}

// rolledOutCondition returns the condition about the rollouts of a policy, without a status if it has none. It is true as soon as
// the final actions of all bindings are registered and loaded.
func rolledOutCondition(p *v1alpha1.WebhookPolicy, o *observation, next *stages) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRolledOut}
	if len(next.bindings) == 0 {
		return c
	}
	var texts []string
	c.Status, c.Reason = metav1.ConditionFalse, ReasonRollingOut
	for i := range next.bindings {
		s := &next.bindings[i]
		switch {
		case s.Final:
		case s.HeldBy != "":
			c.Reason = ReasonRolloutHeld
			texts = append(texts, fmt.Sprintf("binding %q stays in the step %q: %s", s.Name, s.Step, s.HeldBy))
		case s.Paused:
			texts = append(texts, fmt.Sprintf("binding %q is paused in the step %q", s.Name, s.Step))
		default:
			texts = append(texts, fmt.Sprintf("binding %q is in the step %q, until %s at least", s.Name, s.Step, s.Next.UTC().Format(time.RFC3339)))
		}
	}
	switch more := len(texts) - maxShownBindings; {
	case more > 0:
		c.Message = strings.Join(texts[:maxShownBindings], "; ") + fmt.Sprintf("; and %d more", more)
	case len(texts) > 0:
		c.Message = strings.Join(texts, "; ")
	case !equality.Semantic.DeepEqual(p.Status.Bindings, next.bindings), !o.registered, o.notReady != "", o.propagating, o.heldAtIgnore:
		c.Message = "the final action is being registered"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonComplete, "every rollout has reached its final action"
	}
	return c
}
