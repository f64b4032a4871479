package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/policy"
)

// Result is the result of a conversion.
type Result struct {
	Conversions []conversion.Conversion
	// Outputs are those of all conversions, in their order, with unique names.
	Outputs []*conversion.Output
}

func newResult(conversions []conversion.Conversion) *Result {
	r := &Result{Conversions: conversions}
	taken := map[string]bool{}
	for i := range r.Conversions {
		c := &r.Conversions[i]
		for _, o := range c.Outputs {
			r.Outputs = append(r.Outputs, o)
			makeNameUnique(c, o, taken)
		}
	}
	for _, o := range r.Outputs {
		if x, ok := o.Object.(v1alpha1.Exception); ok && o.Of != nil {
			x.GetSpec().PolicyName = o.Of.Object.GetName()
		}
	}
	return r
}

// makeNameUnique renames an object whose kind and name are taken, and reports it.
func makeNameUnique(c *conversion.Conversion, o *conversion.Output, taken map[string]bool) {
	name := o.Object.GetName()
	key := func(name string) string {
		return o.Object.GetObjectKind().GroupVersionKind().Kind + " " + o.Object.GetNamespace() + "/" + name
	}
	unique := name
	for n := 2; taken[key(unique)]; n++ {
		unique = fmt.Sprintf("%s-%d", name, n)
	}
	taken[key(unique)] = true
	if unique == name {
		return
	}
	conversion.Rename(o, unique)
	c.Add(conversion.Row{
		Rule: "metadata.name", Outcome: conversion.Changed, Output: o,
		Detail: fmt.Sprintf("another policy of the input becomes %q: this one becomes %q", name, unique),
	})
}

// ReplaceActions replaces actions that deny or warn with Audit, so that the results deny
// nothing while their sources still exist. It returns the number of policies that it changes.
func (r *Result) ReplaceActions() (changed int) {
	for _, o := range r.Outputs {
		if p := o.Policy(); p != nil && p.Spec.Refuses() && replaceActions(o, p) {
			changed++
		}
	}
	return changed
}

func replaceActions(o *conversion.Output, p *v1alpha1.WebhookPolicy) (changed bool) {
	if len(p.Spec.Bindings) == 0 {
		p.Spec.Bindings = []v1alpha1.Binding{{Name: conversion.BindingName}}
	}
	only := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	for i, before := range p.Spec.EffectiveBindings() {
		if slices.Equal(before.ValidationActions, only) {
			continue
		}
		changed = true
		p.Spec.Bindings[i].ValidationActions = only
		if o.Comments == nil {
			o.Comments = map[string]string{}
		}
		o.Comments[fmt.Sprintf("spec.bindings[%d].validationActions", i)] = fmt.Sprintf(
			"the source has %s",
			inBrackets(before.ValidationActions),
		)
	}
	return changed
}

func inBrackets[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// Policies returns the policies of the result as they are written, to check them.
func (r *Result) Policies(ctx context.Context) (written []load.Object, err error) {
	for _, o := range r.Outputs {
		if o.Policy() == nil {
			continue
		}
		text, err := o.YAML()
		if err != nil {
			return nil, err
		}
		objects, err := load.Text(ctx, o.Object.GetName(), text)
		if err != nil {
			return nil, fmt.Errorf("reading the result of the conversion: %w", err)
		}
		written = append(written, objects...)
	}
	return written, nil
}

// NoteUnaudited notes the policies that their sources evaluate on existing objects, and the
// audit does not.
func (r *Result) NoteUnaudited() {
	compiler := policy.NewCompiler()
	for i := range r.Conversions {
		c := &r.Conversions[i]
		for _, o := range c.Outputs {
			if o.Background == "" {
				continue
			}
			compiled, _ := compiler.Compile(o.Policy())
			if why := compiled.Unauditable(); why != "" {
				c.Add(conversion.Row{
					Rule:    o.Background,
					Outcome: conversion.Changed,
					Output:  o,
					Detail:  "the audit does not evaluate the policy on existing objects: " + why,
				})
			}
		}
	}
}

// NoteRefusal notes an expression of a policy that fails for ordinary objects, or denies all of them.
// It may do so in the source, too.
func (r *Result) NoteRefusal(name, field, finding string) {
	for i := range r.Conversions {
		c := &r.Conversions[i]
		for _, o := range c.Outputs {
			if p := o.Policy(); p == nil || p.Name != name {
				continue
			}
			rule := c.RuleAt(o, field)
			c.Rows = slices.DeleteFunc(c.Rows, func(row conversion.Row) bool {
				return row.Outcome == conversion.Converted && row.Rule == rule && row.Output == o
			})
			c.Add(conversion.Row{
				Rule:    rule,
				Outcome: conversion.Changed,
				Output:  o,
				Detail: fmt.Sprintf("refuses ordinary objects, perhaps as its source does: %s: %s of the result: %s",
					finding, field, o.ExpressionAt(field)),
			})
		}
	}
}

// Reject drops a policy that an API server or Ostiary would reject, and the objects that only
// it needs. Its rules are left out.
func (r *Result) Reject(name, why string) {
	is := func(o *conversion.Output) bool { return o.Policy() != nil && o.Object.GetName() == name }
	for i := range r.Conversions {
		c := &r.Conversions[i]
		if !slices.ContainsFunc(c.Outputs, is) {
			continue
		}
		for j := range c.Rows {
			row := &c.Rows[j]
			if row.Output != nil && is(row.Output) {
				row.Outcome = conversion.LeftOut
				row.Output = nil
				row.Detail = "Ostiary rejects the result: " + why
				row.Alternative = "correct it in the source"
			}
		}
		c.Outputs = slices.DeleteFunc(c.Outputs, is)
		if !slices.ContainsFunc(c.Outputs, func(o *conversion.Output) bool { return o.Policy() != nil }) {
			c.Outputs = nil
		}
	}
	r.Outputs = nil
	for i := range r.Conversions {
		c := &r.Conversions[i]
		c.Outputs = slices.DeleteFunc(c.Outputs, func(o *conversion.Output) bool { return o.Of != nil && is(o.Of) })
		r.Outputs = append(r.Outputs, c.Outputs...)
	}
}
