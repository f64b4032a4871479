// Package advice describes the problems of policies that can be applied. Their texts are for people:
// what a program needs to know about a problem is a field.
package advice

// Warning is a problem of a policy.
type Warning struct {
	// Field is the path that the warning is about, such as spec.validations[0].expression. It is empty
	// if the warning is about no field.
	Field string
	// Text is the problem and, if there is one, a suggestion.
	Text string
	Kind Kind
}

// Kind tells apart warnings that other facts explain or refute.
type Kind int

// The kinds.
const (
	// Other is a warning that stands for itself.
	Other Kind = iota
	// FailingRequest means that requests can fail with an error of the expression. The check of types
	// can know its cause.
	FailingRequest
	// DeniesAll means that a validation denies every request that was tried. One object that the policy
	// allows refutes it, such as a stored one or that of a PolicyTest.
	DeniesAll
)

// String returns the warning as users see it.
func (w Warning) String() string {
	if w.Field == "" {
		return w.Text
	}
	return w.Field + ": " + w.Text
}

// Texts returns warnings as users see them.
func Texts(warnings []Warning) []string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.String())
	}
	return out
}

// General returns warnings that are about no field.
func General(texts []string) []Warning {
	var out []Warning
	for _, text := range texts {
		out = append(out, Warning{Text: text})
	}
	return out
}
