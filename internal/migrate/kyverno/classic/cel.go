package classic

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// cel converts a rule in CEL.
func (v *ruleConverter) cel(c *celRule, message string) error {
	v.fails = true // an expression of an author can fail, for example by the object of a DELETE
	switch {
	case !v.out.reads("params"): // a ConfigMap of the context, which preconditions can read
		v.out.paramKind, v.out.paramRef = c.ParamKind, c.ParamRef
	case c.ParamKind != nil:
		return &leftOutError{
			"validate.cel.paramKind",
			"the rule reads a ConfigMap and has params, and a policy has params of one kind and name",
			"put their data into one ConfigMap",
		}
	}
	v.out.variables = append(v.out.variables, c.Variables...)
	v.out.annotations = slices.Clone(c.AuditAnnotations)
	v.out.ratchet = false
	if v.policy.Spec.failurePolicy() == string(admissionregistrationv1.Ignore) {
		v.notes = append(v.notes, conversion.NoteIgnoredErrors)
	}
	for _, e := range c.Expressions {
		if e.Message == "" && e.MessageExpression == "" {
			e.Message = oneLine(message)
		}
		e.Message = oneLine(e.Message)
		v.out.validations = append(v.out.validations, e)
	}
	return v.out.replaceOrValue()
}

// replaceOrValue rewrites calls of orValue that only Kyverno's version of CEL evaluates.
func (c *convertedRule) replaceOrValue() error {
	variables := map[string]string{}
	for _, v := range c.variables {
		variables[v.Name] = v.Expression
	}
	replace := func(field string, text *string) error {
		changed, err := ce.WithoutPlainOrValue(*text, variables)
		if err != nil {
			return &leftOutError{field, err.Error(), "write the expression without it"}
		}
		*text = changed
		return nil
	}
	for i := range c.conditions {
		if err := replace("celPreconditions", &c.conditions[i].Expression); err != nil {
			return err
		}
	}
	for i := range c.variables {
		if err := replace(fmt.Sprintf("validate.cel.variables[%d]", i), &c.variables[i].Expression); err != nil {
			return err
		}
	}
	for i := range c.validations {
		field := fmt.Sprintf("validate.cel.expressions[%d]", i)
		if err := replace(field, &c.validations[i].Expression); err != nil {
			return err
		}
		if err := replace(field, &c.validations[i].MessageExpression); err != nil {
			return err
		}
	}
	for i := range c.annotations {
		field := fmt.Sprintf("validate.cel.auditAnnotations[%d]", i)
		if err := replace(field, &c.annotations[i].ValueExpression); err != nil {
			return err
		}
	}
	return nil
}
