package celpolicies

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// guards moves matchConditions that read namespaceObject, which only Kyverno has there, to
// a variable. The other expressions have no effect if it is false.
func (b *builder) guards() {
	s := &b.policy.Spec
	var kept []admissionregistrationv1.MatchCondition
	var moved []string
	for _, c := range s.MatchConditions {
		if celtext.Reads(c.Expression, "namespaceObject") {
			moved = append(moved, "("+strings.TrimSpace(c.Expression)+")")
		} else {
			kept = append(kept, c)
		}
	}
	if len(moved) == 0 {
		return
	}
	s.MatchConditions = kept
	s.Variables = append(
		s.Variables,
		admissionregistrationv1.Variable{Name: "matchesNamespace", Expression: strings.Join(moved, " && ")},
	)
	const guard = "variables.matchesNamespace"
	for i := range s.Validations {
		s.Validations[i].Expression = fmt.Sprintf("!%s || (%s)", guard, strings.TrimSpace(s.Validations[i].Expression))
	}
	for i := range s.AuditAnnotations {
		s.AuditAnnotations[i].ValueExpression = fmt.Sprintf(
			"%s ? (%s) : null",
			guard,
			strings.TrimSpace(s.AuditAnnotations[i].ValueExpression),
		)
	}
	for i := range s.Mutations {
		if a := s.Mutations[i].ApplyConfiguration; a != nil {
			a.Expression = fmt.Sprintf("%s ? (%s) : Object{}", guard, strings.TrimSpace(a.Expression))
		}
		if p := s.Mutations[i].JSONPatch; p != nil {
			p.Expression = fmt.Sprintf("%s ? (%s) : []", guard, strings.TrimSpace(p.Expression))
		}
	}
}
