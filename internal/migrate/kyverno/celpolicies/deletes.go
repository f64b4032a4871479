package celpolicies

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// noteMutationOfDelete is the note about mutations that name DELETE, for which there is no object to change.
const noteMutationOfDelete = "DELETE is not decided: Kyverno denies it if it cannot evaluate the policy without an object"

// withoutDelete removes DELETE from the operations of mutations, which have no effect on it.
func (b *builder) withoutDelete() {
	m := b.policy.Spec.MatchConstraints
	if m == nil {
		return
	}
	m = m.DeepCopy()
	removed := false
	isDelete := func(o admissionregistrationv1.OperationType) bool { return o == admissionregistrationv1.Delete }
	m.ResourceRules = slices.DeleteFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return len(r.Operations) == 1 && isDelete(r.Operations[0])
	})
	removed = len(m.ResourceRules) < len(b.policy.Spec.MatchConstraints.ResourceRules)
	for i := range m.ResourceRules {
		r := &m.ResourceRules[i]
		kept := slices.DeleteFunc(slices.Clone(r.Operations), isDelete)
		removed = removed || len(kept) < len(r.Operations)
		r.Operations = kept
	}
	switch {
	case !removed:
	case len(m.ResourceRules) == 0:
		b.leaveOut(
			"spec.matchConstraints",
			"the mutation is only for DELETE, for which there is no object to change",
			"remove it",
		)
	default:
		b.policy.Spec.MatchConstraints = m
		b.change("spec.matchConstraints", noteMutationOfDelete)
	}
}
