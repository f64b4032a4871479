package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/response"
)

// auditSuspendedKey is the key of the annotation that lists suspended policies. The keys of policies
// contain a dot.
const auditSuspendedKey = "suspended"

// isSuspended reports whether the policy has no effect on requests now. The time is compared at each
// request, so that a suspension ends without a write.
func (c *Compiled) isSuspended(host Environment) bool {
	return !c.suspendedUntil.IsZero() && v1alpha1.IsSuspended(c.suspendedUntil, host.Now())
}

// passSuspended adds a policy that has no effect.
func (a *answer) passSuspended(p *Compiled, operation admissionv1.Operation, host Environment) {
	if !slices.Contains(a.suspended, p.name) {
		a.suspended = append(a.suspended, p.name)
	}
	if host.Observe != nil {
		host.Observe(p.name, operation, DecisionSuspended, 0)
	}
}

// annotateSuspended adds the suspended policies to the audit annotations.
func (a *answer) annotateSuspended() { a.annotateNames(auditSuspendedKey, a.suspended) }

// annotateNames adds names of policies to the audit annotations.
func (a *answer) annotateNames(key string, names []string) {
	if len(names) == 0 {
		return
	}
	shown := names[:min(len(names), maxSkippedNames)]
	text := strings.Join(shown, response.Separator)
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	a.SetAnnotation(key, text)
}
