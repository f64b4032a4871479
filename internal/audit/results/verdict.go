package results

import (
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/policy"
)

// Verdict is the result of a policy for an object, in one byte.
type Verdict byte

// The verdicts. An object without one is not evaluated, or a match condition skips it. Those with
// Anew are about an object that passes as it is.
const (
	Unmatched Verdict = iota
	Passed
	Violated
	Warned
	Errored      // an error of the evaluation
	ViolatedAnew // it fails a validation if it is created again
	ErroredAnew  // an error if it is created again
	Excepted     // it passes only because of an exception
	verdicts
)

// wouldChange is added to the verdict about an object that a mutation would change.
const wouldChange Verdict = 0x80

// withoutChange returns the verdict of the validations.
func (v Verdict) withoutChange() Verdict { return v &^ wouldChange }

// VerdictOf returns the verdict for a result.
func VerdictOf(got audit.Result) Verdict {
	verdict := verdictOfDecision(got.Decision)
	if got.Operation != admissionv1.Create {
		return verdict
	}
	switch verdict {
	case Violated, Warned:
		return ViolatedAnew
	case Errored:
		return ErroredAnew
	}
	return verdict
}

func verdictOfDecision(d policy.Decision) Verdict {
	switch d {
	case policy.DecisionUnmatched, policy.DecisionSkip:
		return Unmatched
	case policy.DecisionDeny, policy.DecisionAudit:
		return Violated
	case policy.DecisionWarn, policy.DecisionRatchet:
		return Warned
	case policy.DecisionError:
		return Errored
	case policy.DecisionExcepted:
		return Excepted
	}
	return Passed
}

// isDescribed reports whether an object with the verdict is described by a line.
func (v Verdict) isDescribed() bool { return v.withoutChange() >= Violated }

// rank orders findings by severity: failures, errors, warnings, those about new objects, and what
// exceptions let pass.
func (v Verdict) rank() int {
	return [verdicts]int{Violated: 0, Errored: 1, Warned: 2, ViolatedAnew: 3, ErroredAnew: 4, Excepted: 5}[v]
}

// result returns the verdict as in reports.
func (v Verdict) result() string {
	return [verdicts]string{
		Passed: "pass", Violated: "fail", Warned: "warn", Errored: "error", ViolatedAnew: "warn", ErroredAnew: "error",
		Excepted: "skip",
	}[v]
}

// operation is the operation that the finding is about.
func (v Verdict) operation() string {
	if v == ViolatedAnew || v == ErroredAnew {
		return string(admissionv1.Create)
	}
	return string(admissionv1.Update)
}

// mark is what examples say about a finding besides its object and validation.
func (v Verdict) mark() string {
	return [verdicts]string{Errored: " (error)", ViolatedAnew: " (CREATE)", ErroredAnew: " (CREATE, error)"}[v]
}

// Counts are numbers of objects by verdict, and of those that a mutation would change.
type Counts [verdicts + 1]int64

// count adds objects with a verdict. Those without one are not counted.
func (c *Counts) count(v Verdict, by int64) {
	if result := v.withoutChange(); result != Unmatched {
		c[result] += by
	}
	if v&wouldChange != 0 {
		c[verdicts] += by
	}
}

// WouldChange is the number of objects that a mutation would change.
func (c Counts) WouldChange() int64 { return c[verdicts] }

func (c *Counts) add(o Counts) {
	for i := range c {
		c[i] += o[i]
	}
}

// Violations is the number of objects that fail a validation as they are.
func (c Counts) Violations() int64 { return c[Violated] + c[Warned] }

// ViolationsAnew is the number of objects that fail a validation only if they are created again.
func (c Counts) ViolationsAnew() int64 { return c[ViolatedAnew] }

func (c Counts) errors() int64 { return c[Errored] + c[ErroredAnew] }

func (c Counts) evaluated() int64 { return c[Passed] + c.described() }

// described is the number of objects that are described by lines.
func (c Counts) described() int64 {
	return c.Violations() + c.ViolationsAnew() + c.errors() + c[Excepted]
}
