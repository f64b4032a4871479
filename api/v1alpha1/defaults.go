package v1alpha1

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// DefaultOrder is the order of a policy that sets none.
const DefaultOrder int32 = 500

// DefaultTimeoutSeconds is the timeout of a policy that sets none.
const DefaultTimeoutSeconds int32 = 5

// Types of a WebhookPolicy's conditions.
const (
	// ConditionAccepted is true if every expression compiles and the policy may be
	// registered.
	ConditionAccepted = "Accepted"
	// ConditionRegistered is true if the webhook configurations in the API server
	// contain the policy, and every replica has loaded it.
	ConditionRegistered = "Registered"
	// ConditionReachable is true if API servers reach Ostiary, or, for a policy with
	// a backend, if the last TLS handshake with the backend succeeded.
	ConditionReachable = "Reachable"
	// ConditionCAReady is true if the registered CA bundle of the backend is the
	// current one of its source. Only policies with a backend have it.
	ConditionCAReady = "CAReady"
	// ConditionAudited is true if the policy is evaluated on all stored objects that it
	// matches. It does not affect Ready.
	ConditionAudited = "Audited"
	// ConditionRehearsed is true if the policy was evaluated on small objects of each kind
	// that it matches, and no request was found that fails with an error or goes around it.
	// It does not affect Ready.
	ConditionRehearsed = "Rehearsed"
	// ConditionRolledOut is true if every rollout has reached its final action. Only policies
	// with rollouts have it, and it does not affect Ready.
	ConditionRolledOut = "RolledOut"
	// ConditionReady is true if the policy is enforced on every API server.
	ConditionReady = "Ready"
	// ConditionReconciling is present and true while Ostiary works on the policy.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present and true if only a change of the policy helps.
	ConditionStalled = "Stalled"
)

// The defaults below are computed and never written into the user's object, so
// that tools that compare it with its source see no difference.

// EffectiveFailurePolicy returns the failurePolicy of the spec, by default Fail.
func (s *WebhookPolicySpec) EffectiveFailurePolicy() admissionregistrationv1.FailurePolicyType {
	if s.FailurePolicy == nil {
		return admissionregistrationv1.Fail
	}
	return *s.FailurePolicy
}

// EffectiveTimeoutSeconds returns the timeout of the spec, or its default.
func (s *WebhookPolicySpec) EffectiveTimeoutSeconds() int32 {
	if s.TimeoutSeconds == nil {
		return DefaultTimeoutSeconds
	}
	return *s.TimeoutSeconds
}

// EffectiveOrder returns the order of the spec, or its default.
func (s *WebhookPolicySpec) EffectiveOrder() int32 {
	if s.Order == nil {
		return DefaultOrder
	}
	return *s.Order
}

// EffectiveReinvocationPolicy returns the reinvocationPolicy of the spec, by
// default Never.
func (s *WebhookPolicySpec) EffectiveReinvocationPolicy() admissionregistrationv1.ReinvocationPolicyType {
	if s.ReinvocationPolicy == nil {
		return admissionregistrationv1.NeverReinvocationPolicy
	}
	return *s.ReinvocationPolicy
}

// Mutates reports whether the policy calls Ostiary in the mutating phase.
func (s *WebhookPolicySpec) Mutates() bool { return len(s.Mutations) > 0 || s.traits().Mutates }

// Validates reports whether the policy calls Ostiary in the validating phase.
func (s *WebhookPolicySpec) Validates() bool {
	return s.Refuses() || len(s.AuditAnnotations) > 0
}

// Refuses reports whether requests can fail the policy, so that the actions of
// the bindings apply.
func (s *WebhookPolicySpec) Refuses() bool {
	return len(s.Validations) > 0 || s.traits().Validates
}

// ReadsParams reports whether any binding has params of paramKind.
func (s *WebhookPolicySpec) ReadsParams() bool {
	return s.ParamKind != nil && slices.ContainsFunc(s.Bindings, func(b Binding) bool { return b.ParamRef != nil })
}

// ParamRefs returns the paramRefs of the bindings that have one.
func (s *WebhookPolicySpec) ParamRefs() (out []*admissionregistrationv1.ParamRef) {
	for i := range s.Bindings {
		if ref := s.Bindings[i].ParamRef; ref != nil {
			out = append(out, ref)
		}
	}
	return out
}

// EffectiveBindings returns the bindings of the spec with their default actions.
// If there are none, it returns one without a name that denies. A binding with a rollout
// has the actions of the first step, which are those without a status.
func (s *WebhookPolicySpec) EffectiveBindings() []Binding {
	deny := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	if len(s.Bindings) == 0 {
		return []Binding{{ValidationActions: deny}}
	}
	out := slices.Clone(s.Bindings)
	for i := range out {
		if r := out[i].Rollout; r != nil && len(r.Steps) > 0 {
			out[i].ValidationActions, out[i].MutationAction = r.Steps[0].Effective()
		}
		if len(out[i].ValidationActions) == 0 {
			out[i].ValidationActions = deny
		}
	}
	return out
}

// Denies reports whether any binding has the action Deny.
func (s *WebhookPolicySpec) Denies() bool {
	return slices.ContainsFunc(s.EffectiveBindings(), func(b Binding) bool {
		return slices.Contains(b.ValidationActions, admissionregistrationv1.Deny)
	})
}

// WebhookFailurePolicy returns the failurePolicy for the API server's call in the
// validating phase. It is Ignore for a policy that never denies: on an error,
// ValidatingAdmissionPolicy would only warn or audit. (An error in an audit
// annotation denies; only Ostiary can detect it, in its answer.) In the mutating
// phase MutationFailurePolicy applies.
func (s *WebhookPolicySpec) WebhookFailurePolicy() admissionregistrationv1.FailurePolicyType {
	if !s.Denies() {
		return admissionregistrationv1.Ignore
	}
	return s.EffectiveFailurePolicy()
}

// Previews reports whether every binding only previews the mutations.
func (s *WebhookPolicySpec) Previews() bool {
	return s.Mutates() && !slices.ContainsFunc(s.EffectiveBindings(), func(b Binding) bool {
		return b.MutationAction != MutationActionPreview
	})
}

// MutationFailurePolicy returns the failurePolicy for the API server's call in the mutating
// phase. It is Ignore for a policy that only previews: an outage of Ostiary must not deny what
// the policy does not even change.
func (s *WebhookPolicySpec) MutationFailurePolicy() admissionregistrationv1.FailurePolicyType {
	if s.Previews() {
		return admissionregistrationv1.Ignore
	}
	return s.EffectiveFailurePolicy()
}

// Actions returns what the policy does, joined by commas: Mutate or Preview, then the actions
// of all bindings in the order Deny, Warn, Audit; Annotate for a policy with audit
// annotations and no validations; or Backend.
func (s *WebhookPolicySpec) Actions() string {
	if s.Backend != nil {
		return "Backend"
	}
	var out []string
	switch {
	case s.Previews():
		out = append(out, "Preview")
	case s.Mutates():
		out = append(out, "Mutate")
	}
	if !s.Refuses() {
		if len(s.AuditAnnotations) > 0 {
			out = append(out, "Annotate")
		}
		return strings.Join(out, ",")
	}
	for _, a := range []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit} {
		if slices.ContainsFunc(s.EffectiveBindings(), func(b Binding) bool { return slices.Contains(b.ValidationActions, a) }) ||
			s.PodTemplates != nil && slices.Contains(s.PodTemplates.ValidationActions, a) {
			out = append(out, string(a))
		}
	}
	return strings.Join(out, ",")
}
