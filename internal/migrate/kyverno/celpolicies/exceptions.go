package celpolicies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// appliedException is an exception, and what became of it.
type appliedException struct {
	policyException
	source *load.Object
	to     []*conversion.Output
	failed []string // why it is left out for policies
}

// exceptionsOf returns the exceptions of the input, and conversions of those that are left
// out. Expired exceptions have no effect.
func exceptionsOf(in *conversion.Input) (exceptions []*appliedException, left []conversion.Conversion) {
	for i := range in.Objects {
		if in.Objects[i].Kind != kindException {
			continue
		}
		c := conversion.Conversion{Source: in.Objects[i]}
		e := &appliedException{source: &in.Objects[i]}
		ok := c.Decode(&e.policyException)
		if ok && (e.Spec.ExpiresAt == nil || !e.Spec.ExpiresAt.Time.Before(in.Now)) {
			exceptions = append(exceptions, e)
			continue
		}
		if ok {
			c.Add(conversion.Row{
				Outcome: conversion.Converted,
				Detail:  "it has expired at " + e.Spec.ExpiresAt.UTC().Format(time.RFC3339) + " and has no effect",
			})
		}
		left = append(left, c)
	}
	return exceptions, left
}

func (e *appliedException) refersTo(o *load.Object) bool {
	for _, ref := range e.Spec.PolicyRefs {
		if ref.Name == o.Metadata.Name && ref.Kind == o.Kind {
			return true
		}
	}
	return false
}

// conversion says what became of the exception.
func (e *appliedException) conversion() conversion.Conversion {
	c := conversion.Conversion{Source: *e.source}
	for _, why := range e.failed {
		c.LeaveOut(
			"spec.matchConditions",
			why,
			"exempt users or namespaces, or write a policy for Pods and one for workloads",
		)
	}
	switch {
	case len(e.to) == 0 && len(e.failed) > 0:
	case len(e.to) == 0:
		c.LeaveOut(
			"spec.policyRefs",
			"no converted policy of the input has such a name and kind",
			"add the file of the policy with -f",
		)
	case e.Spec.ExpiresAt != nil:
		c.Add(conversion.Row{
			Rule:    "spec.expiresAt",
			Outcome: conversion.Changed,
			Output:  e.to[0],
			Detail: "it is " + e.form() + " of the policy and does not expire: remove it " +
				"after " + e.Spec.ExpiresAt.UTC().Format(time.RFC3339),
		})
	default:
		c.Add(conversion.Row{
			Outcome: conversion.Changed,
			Output:  e.to[0],
			Detail:  "it is " + e.form() + " of the policy: clients that can update the policy can change the exception",
		})
	}
	return c
}

// form is what the exception becomes.
func (e *appliedException) form() string {
	if len(e.Spec.Images)+len(e.Spec.AllowedValues) > 0 {
		return "a variable"
	}
	return "a matchCondition"
}

// except adds the exceptions of a policy. One with images or values changes only what the
// policy reads from the variable exceptions; others exempt the request.
func (b *builder) except() {
	var images, values []string
	b.exceptions = slices.DeleteFunc(b.exceptions, b.leaveOutException)
	for _, e := range b.exceptions {
		condition := conjunctionOf(e.Spec.MatchConditions)
		if len(e.Spec.Images)+len(e.Spec.AllowedValues) == 0 {
			b.policy.Spec.MatchConditions = append(
				b.policy.Spec.MatchConditions,
				admissionregistrationv1.MatchCondition{Name: "exception-" + e.Name, Expression: "!(" + condition + ")"},
			)
		}
		images = append(images, listIf(condition, e.Spec.Images)...)
		values = append(values, listIf(condition, e.Spec.AllowedValues)...)
	}
	b.allowed("allowedImages", images)
	b.allowed("allowedValues", values)
}

// leaveOutException leaves out an exception that reads the object, if the policy is extended
// to pod templates: there, the object is the Pod of the template and has neither the kind nor
// the name and the labels of the workload.
func (b *builder) leaveOutException(e *appliedException) bool {
	condition := conjunctionOf(e.Spec.MatchConditions)
	readsObject := slices.ContainsFunc(
		[]string{"object", "oldObject", "variables"},
		func(name string) bool { return celtext.Reads(condition, name) },
	)
	if !readsObject || len(b.controllers()) == 0 {
		return false
	}
	e.failed = append(e.failed, fmt.Sprintf(
		"it reads the object, and the policy %s is extended to pod templates, whose object is the Pod of the "+
			"template: it would exempt no workload",
		b.Source.Metadata.Name,
	))
	b.change(
		"spec.autogen",
		fmt.Sprintf("the PolicyException %s is left out: the policy applies to what it exempts", e.Name),
	)
	return true
}

// conjunctionOf returns the conjunction of conditions.
func conjunctionOf(conditions []admissionregistrationv1.MatchCondition) string {
	if len(conditions) == 0 {
		return "true"
	}
	parts := make([]string, len(conditions))
	for i, c := range conditions {
		parts[i] = "(" + strings.TrimSpace(c.Expression) + ")"
	}
	return strings.Join(parts, " && ")
}

// listIf returns a list of constants that is empty if the condition is false; nothing
// without constants.
func listIf(condition string, constants []string) []string {
	if len(constants) == 0 {
		return nil
	}
	quoted := make([]string, len(constants))
	for i, c := range constants {
		quoted[i] = celtext.QuoteText(c)
	}
	list := "[" + strings.Join(quoted, ", ") + "]"
	if condition == "true" {
		return []string{list}
	}
	return []string{fmt.Sprintf("(%s ? %s : [])", condition, list)}
}

// allowed replaces a field of the variable exceptions by a variable of the policy.
func (b *builder) allowed(field string, lists []string) {
	expression := "[]"
	if len(lists) > 0 {
		expression = strings.Join(lists, " + ")
	}
	variable := admissionregistrationv1.Variable{Name: "exceptions_" + field, Expression: expression}
	used := false
	b.eachExpression(func(_ string, text *string) {
		changed := celtext.ReplaceFields(*text, "exceptions", field, "variables."+variable.Name)
		used = used || changed != *text
		*text = changed
	})
	if used {
		b.policy.Spec.Variables = append([]admissionregistrationv1.Variable{variable}, b.policy.Spec.Variables...)
	}
}
