package results

import "github.com/ostiary/ostiary/internal/policy"

// Verdict is the result of a policy for an object, in one byte.
type Verdict byte

// The verdicts. An object without one is not evaluated, or a match condition skips it.
const (
	Unmatched Verdict = iota
	Passed
	Violated
	Warned
	Errored // an error of the evaluation
	verdicts
)

// VerdictOf returns the verdict for a decision.
func VerdictOf(d policy.Decision) Verdict {
	switch d {
	case policy.DecisionUnmatched, policy.DecisionSkip:
		return Unmatched
	case policy.DecisionDeny, policy.DecisionAudit:
		return Violated
	case policy.DecisionWarn, policy.DecisionRatchet:
		return Warned
	case policy.DecisionError:
		return Errored
	}
	return Passed
}

// isFinding reports whether an object with the verdict is described by a line.
func (v Verdict) isFinding() bool { return v == Violated || v == Warned || v == Errored }

// rank orders findings by severity: failures, errors, then warnings.
func (v Verdict) rank() int { return [verdicts]int{Violated: 0, Errored: 1, Warned: 2}[v] }

// result returns the verdict as in reports.
func (v Verdict) result() string {
	return [verdicts]string{Passed: "pass", Violated: "fail", Warned: "warn", Errored: "error"}[v]
}

// Counts are numbers of objects by verdict.
type Counts [verdicts]int64

func (c *Counts) add(o Counts) {
	for i := range c {
		c[i] += o[i]
	}
}

// Violations is the number of objects that fail a validation.
func (c Counts) Violations() int64 { return c[Violated] + c[Warned] }

func (c Counts) evaluated() int64 { return c[Passed] + c.findings() }

// findings is the number of objects that are described.
func (c Counts) findings() int64 { return c.Violations() + c[Errored] }
