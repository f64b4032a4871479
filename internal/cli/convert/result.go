package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/lint"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/verify"
	"github.com/ostiary/ostiary/internal/policy"
)

// result is what a run of the command writes.
type result struct {
	conversions []conversion.Conversion
	outputs     []*conversion.Output
	audited     int            // policies whose actions are Audit instead of those of the source
	verified    *verify.Result // of tests
	compared    *verify.Result // of objects
}

// newResult makes the names of policies unique.
func newResult(conversions []conversion.Conversion) *result {
	r := &result{conversions: conversions}
	taken := map[string]bool{}
	for i := range r.conversions {
		c := &r.conversions[i]
		for _, o := range c.Outputs {
			r.outputs = append(r.outputs, o)
			name := o.Object.GetName()
			key := func(name string) string {
				return o.Object.GetObjectKind().GroupVersionKind().Kind + " " + o.Object.GetNamespace() + "/" + name
			}
			free := name
			for n := 2; taken[key(free)]; n++ {
				free = fmt.Sprintf("%s-%d", name, n)
			}
			taken[key(free)] = true
			if free != name {
				conversion.Rename(o, free)
				c.Add(conversion.Row{Rule: "metadata.name", Outcome: conversion.Changed, Output: o,
					Detail: fmt.Sprintf("another policy of the input becomes %q: this one becomes %q", name, free)})
			}
		}
	}
	return r
}

// audit replaces actions that deny or warn with Audit.
func (r *result) audit() {
	for _, o := range r.outputs {
		if p := o.Policy(); p != nil && p.Spec.Refuses() && audit(o, p) {
			r.audited++
		}
	}
}

func audit(o *conversion.Output, p *v1alpha1.WebhookPolicy) (changed bool) {
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
		o.Comments[fmt.Sprintf("spec.bindings[%d].validationActions", i)] = fmt.Sprintf("the source has %s", inBrackets(before.ValidationActions))
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

// check drops the policies that an API server or Ostiary would reject. Their rules are left
// out.
func (r *result) check(ctx context.Context) error {
	var written []load.Object
	for _, o := range r.outputs {
		if o.Policy() == nil {
			continue
		}
		text, err := o.YAML()
		if err != nil {
			return err
		}
		objects, err := load.Text(ctx, o.Object.GetName(), text)
		if err != nil {
			return fmt.Errorf("reading the result of the conversion: %w", err)
		}
		written = append(written, objects...)
	}
	findings, err := lint.Errors(ctx, written, policy.LatestEngine)
	if err != nil {
		return err
	}
	for _, f := range findings {
		name := f.Policy
		if name == "" {
			name = f.File
		}
		r.reject(name, strings.TrimPrefix(f.Field+": "+f.Message, ": "))
	}
	return nil
}

// noteUnaudited notes the policies that their sources evaluate on existing objects, and the
// audit does not.
func (r *result) noteUnaudited() {
	compiler := policy.NewCompiler()
	for i := range r.conversions {
		c := &r.conversions[i]
		for _, o := range c.Outputs {
			if o.Background == "" {
				continue
			}
			compiled, _ := compiler.Compile(o.Policy())
			if why := compiled.Unauditable(); why != "" {
				c.Add(conversion.Row{Rule: o.Background, Outcome: conversion.Changed, Output: o, Detail: "the audit does not evaluate the policy on existing objects: " + why})
			}
		}
	}
}

// reject drops a policy, and the objects that only it needs.
func (r *result) reject(name, why string) {
	is := func(o *conversion.Output) bool { return o.Policy() != nil && o.Object.GetName() == name }
	for i := range r.conversions {
		c := &r.conversions[i]
		if !slices.ContainsFunc(c.Outputs, is) {
			continue
		}
		for j := range c.Rows {
			row := &c.Rows[j]
			if row.Output != nil && is(row.Output) {
				row.Outcome, row.Detail, row.Output = conversion.LeftOut, "Ostiary rejects the result: "+why, nil
				row.Alternative = "correct it in the source"
			}
		}
		c.Outputs = slices.DeleteFunc(c.Outputs, is)
		if !slices.ContainsFunc(c.Outputs, func(o *conversion.Output) bool { return o.Policy() != nil }) {
			c.Outputs = nil
		}
	}
	r.outputs = nil
	for _, c := range r.conversions {
		r.outputs = append(r.outputs, c.Outputs...)
	}
}
