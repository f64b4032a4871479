package output

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// Skipped has what a command cannot read or evaluate, and leaves out of its result.
type Skipped struct {
	to       io.Writer
	problems []error
	written  int
}

// NewSkipped returns a Skipped that writes to a writer.
func NewSkipped(to io.Writer) *Skipped { return &Skipped{to: to} }

// Add adds a problem, or each of several that are joined.
func (s *Skipped) Add(err error) {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		s.problems = append(s.problems, err)
		return
	}
	for _, e := range several.Unwrap() {
		s.Add(e)
	}
}

// Problems returns all problems.
func (s *Skipped) Problems() []error { return slices.Clone(s.problems) }

// Instead returns the problems that are not written yet as the error of a command for which
// nothing is left, or another error if there are none.
func (s *Skipped) Instead(of error) error {
	if len(s.problems) == s.written {
		return of
	}
	return errors.Join(s.problems[s.written:]...)
}

// Write writes a line for each problem that is not written yet.
func (s *Skipped) Write() {
	for _, problem := range s.problems[s.written:] {
		_, _ = fmt.Fprintln(s.to, Wrap(s.to, "skipping "+Printable(problem.Error())))
	}
	s.written = len(s.problems)
}

// Result writes the problems, and returns the error of a command that returned err. If
// something is left out, the exit status is that of an invalid input, whatever the command has
// found in the rest.
func (s *Skipped) Result(err error) error {
	var findings *FindingsError
	if len(s.problems) == 0 || err != nil && !errors.As(err, &findings) {
		return err
	}
	s.Write()
	text := "the result is without what was skipped"
	if findings != nil && findings.Text != "" {
		text = findings.Text + "; " + text
	}
	return errors.New(text)
}
