package celsyntax

import "github.com/ostiary/ostiary/api/v1alpha1"

// RatchetRisk is a ratcheting validation that can be false for the stored object for a reason
// that is not in the object.
type RatchetRisk struct {
	Validation int // its index
	// Reads is what the expression or a variable of it reads about the client or the call,
	// such as "request.userInfo"; empty for an expression that does not read object.
	Reads string
}

// RatchetRisks returns the risks of the ratcheting validations. Who wrote the stored object, with which permissions
// and options, is not known: the second evaluation has the values of the current request.
func RatchetRisks(spec *v1alpha1.WebhookPolicySpec, parsed Trees) (out []RatchetRisk) {
	if !Ratchets(spec) {
		return nil
	}
	a := newAuditability(spec, parsed)
	for i, v := range spec.Validations {
		if !spec.Ratchets(i) || parsed[v.Expression] == nil {
			continue
		}
		if f := a.factsOf(v.Expression); f.ofRequest != "" || !f.object {
			out = append(out, RatchetRisk{Validation: i, Reads: f.ofRequest})
		}
	}
	return out
}

// Ratchets reports whether a validation of the policy ratchets.
func Ratchets(spec *v1alpha1.WebhookPolicySpec) bool {
	for i := range spec.Validations {
		if spec.Ratchets(i) {
			return true
		}
	}
	return false
}
