// Package rollout is the state machine of bindings whose actions change by evidence. Next decides the
// next state from the recorded one, and Effective says what a binding does in the recorded state, so
// that no replica is ahead of what is recorded.
package rollout

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Effect is what a binding does in some namespaces.
type Effect struct {
	// Step is the name of a step; empty for the final action, and without a rollout.
	Step string
	// NamespaceSelector selects the namespaces; nil for all requests. One that is not nil does not
	// select cluster-scoped objects, except Namespaces.
	NamespaceSelector *metav1.LabelSelector
	// ValidationActions has at least one element.
	ValidationActions []admissionregistrationv1.ValidationAction
	// MutationAction is never empty.
	MutationAction v1alpha1.MutationAction
	// Evidence is the key under which violations of requests count for the end of the step in effect.
	// It is empty for other steps and for the final action.
	Evidence string
}

// Effective returns the effects of a binding of a policy with a status. The first one that selects a
// request applies; the last one has no selector. Without a recorded state, or with one that the
// spec does not have, they are those of the first step.
func Effective(b *v1alpha1.Binding, states []v1alpha1.BindingStatus) []Effect {
	r := b.Rollout
	if r == nil || len(r.Steps) == 0 {
		return []Effect{finalEffect(b.ValidationActions, b.MutationAction)}
	}
	state := StateOf(states, b.Name)
	if state.Final {
		return []Effect{finalEffect(r.Final.ValidationActions, r.Final.MutationAction)}
	}
	current := max(0, indexOf(r, state.Step))
	var out []Effect
	for i := current; i >= 0; i-- {
		e := stepEffect(&r.Steps[i])
		if i == current && state.Step == e.Step {
			e.Evidence = EvidenceKey(state.Token)
		}
		if i == 0 {
			e.NamespaceSelector = nil // the last one applies wherever no other does
		}
		if out = append(out, e); e.NamespaceSelector == nil {
			break
		}
	}
	return out
}

func finalEffect(actions []admissionregistrationv1.ValidationAction, mutation v1alpha1.MutationAction) Effect {
	e := Effect{ValidationActions: actions, MutationAction: mutation}
	if len(actions) == 0 {
		e.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	if mutation == "" {
		e.MutationAction = v1alpha1.MutationActionApply
	}
	return e
}

// stepEffect is that of a step: without actions, it audits and previews.
func stepEffect(s *v1alpha1.RolloutStep) Effect {
	actions, mutation := s.Effective()
	return Effect{Step: s.Name, NamespaceSelector: s.NamespaceSelector, ValidationActions: actions, MutationAction: mutation}
}

// StateOf returns the recorded state of a binding. Without one, it has no name.
func StateOf(states []v1alpha1.BindingStatus, binding string) v1alpha1.BindingStatus {
	for i := range states {
		if states[i].Name == binding {
			return states[i]
		}
	}
	return v1alpha1.BindingStatus{}
}

// Recorded returns the recorded states that are about the spec of a policy: without the final state of a binding whose
// rollout restarts because of a change that can alter decisions, so that a replica that loads the change before the
// restart has been recorded does not deny.
func Recorded(p *v1alpha1.WebhookPolicy) []v1alpha1.BindingStatus {
	out := p.Status.Bindings
	for i := range p.Spec.Bindings {
		b := &p.Spec.Bindings[i]
		if b.Rollout == nil || b.Rollout.OnChange != v1alpha1.RolloutOnChangeRestart {
			continue
		}
		if state := StateOf(out, b.Name); state.Final && restarts(b.Rollout, &state, policyHash(&p.Spec, b, nil)) {
			isOf := func(s v1alpha1.BindingStatus) bool { return s.Name == b.Name }
			out = slices.DeleteFunc(slices.Clone(out), isOf)
		}
	}
	return out
}

// restarts reports whether a rollout that has reached its final action begins again, with the hash of the policy.
func restarts(r *v1alpha1.Rollout, final *v1alpha1.BindingStatus, hash string) bool {
	return r.OnChange == v1alpha1.RolloutOnChangeRestart && final.PolicyHash != "" && final.PolicyHash != hash
}

// indexOf returns the index of a step, -1 if there is none.
func indexOf(r *v1alpha1.Rollout, step string) int {
	return slices.IndexFunc(r.Steps, func(s v1alpha1.RolloutStep) bool { return s.Name == step })
}

// Has reports whether a policy has a binding with a rollout.
func Has(spec *v1alpha1.WebhookPolicySpec) bool {
	return slices.ContainsFunc(spec.Bindings, func(b v1alpha1.Binding) bool { return b.Rollout != nil })
}

// InEffect returns the policy without rollouts, whose bindings have the actions of all their effects: what API
// servers have to know. It returns the same policy if there are no rollouts, and shares memory with it.
func InEffect(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	if !Has(&p.Spec) {
		return p
	}
	out := *p
	out.Spec.Bindings = slices.Clone(p.Spec.Bindings)
	inSteps, states := 0, Recorded(p)
	for i := range out.Spec.Bindings {
		b := &out.Spec.Bindings[i]
		if b.Rollout == nil {
			continue
		}
		effects := Effective(b, states)
		if effects[0].Step != "" {
			inSteps++
		}
		b.Rollout, b.ValidationActions, b.MutationAction = nil, nil, v1alpha1.MutationActionPreview
		for _, e := range effects {
			e.addTo(b)
		}
	}
	if t := p.Spec.PodTemplates; t != nil && inSteps == len(out.Spec.Bindings) {
		out.Spec.PodTemplates = &v1alpha1.PodTemplates{Kinds: t.Kinds} // its actions apply to no binding that is in a step
	}
	return &out
}

// AtEnd returns the policy as if its rollouts had reached their final actions. It returns the same policy if there are no
// rollouts, and shares memory with it.
func AtEnd(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	if !Has(&p.Spec) {
		return p
	}
	out := *p
	out.Spec.Bindings = slices.Clone(p.Spec.Bindings)
	for i := range out.Spec.Bindings {
		if b := &out.Spec.Bindings[i]; b.Rollout != nil {
			b.ValidationActions, b.MutationAction, b.Rollout = b.Rollout.Final.ValidationActions, b.Rollout.Final.MutationAction, nil
		}
	}
	return &out
}

// addTo adds the actions of the effect to those of a binding.
func (e *Effect) addTo(b *v1alpha1.Binding) {
	for _, action := range e.ValidationActions {
		if !slices.Contains(b.ValidationActions, action) {
			b.ValidationActions = append(b.ValidationActions, action)
		}
	}
	if e.MutationAction == v1alpha1.MutationActionApply {
		b.MutationAction = v1alpha1.MutationActionApply
	}
}

// SameEffect reports whether two versions of a generation of a policy have the same effects.
func SameEffect(a, b *v1alpha1.WebhookPolicy) bool {
	for i := range a.Spec.Bindings {
		if a.Spec.Bindings[i].Rollout == nil {
			continue
		}
		name := a.Spec.Bindings[i].Name
		before, after := StateOf(a.Status.Bindings, name), StateOf(b.Status.Bindings, name)
		if before.Step != after.Step || before.Final != after.Final || EvidenceKey(before.Token) != EvidenceKey(after.Token) {
			return false
		}
	}
	return true
}
