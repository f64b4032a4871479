package e2e

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// denied is what the policy says that the load is about.
const denied = "say whether this is good"

// step is a part of a load, with what became of its requests.
type step struct {
	name     string
	requests int
	failures []string
}

// problems returns what is wrong: failed requests, or too few of them.
func (s *step) problems() (problems []string) {
	if len(s.failures) > 0 {
		problems = append(problems, fmt.Sprintf("%d of %d requests failed, the first of them:\n%s",
			len(s.failures), s.requests, strings.Join(s.failures[:min(5, len(s.failures))], "\n")))
	}
	if s.requests < 50 {
		problems = append(problems, fmt.Sprintf("only %d requests: this shows nothing", s.requests))
	}
	return problems
}

// wrongUnlessDenied makes an error of every answer but the policy's.
func wrongUnlessDenied(err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("it was allowed")
	case (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && strings.Contains(err.Error(), denied):
		return nil
	}
	return err
}
