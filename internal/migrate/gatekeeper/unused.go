package gatekeeper

import (
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/policy"
)

// judgeUnused says whether a template converts that no constraint of the input uses, by means of a
// constraint without parameters.
func (d *templateDefinition) judgeUnused(c *conversion.Conversion, resources *resourceFinder) {
	raw := encodeJSON(map[string]any{
		"apiVersion": constraintsGroup + "/" + constraintsVersion,
		"kind":       d.Spec.CRD.Spec.Names.Kind,
		"metadata":   map[string]any{"name": d.Name},
	})
	constraint, err := d.object.New([]byte(raw), "")
	if err != nil {
		c.LeaveOutInvalid(d.object.Errorf("spec.crd.spec.names.kind", "the template defines no kind: add it"))
		return
	}
	with := conversion.Conversion{Source: *constraint}
	convertConstraint(&with, d, conversion.ParamsConstants, resources)
	for _, row := range with.Rows {
		if row.Outcome == conversion.LeftOut {
			c.Add(row)
		}
	}
	for _, o := range with.Outputs {
		if _, errs := policy.NewCompiler().Compile(o.Policy()); len(errs) > 0 {
			c.LeaveOut("spec.targets", "Ostiary rejects the result: "+errs[0].Error(), "correct it in the source")
		}
	}
	if len(c.Rows) == 0 {
		c.Add(conversion.Row{
			Outcome: conversion.Converted,
			Detail:  "without a constraint in the input it has no effect; add the file of one with -f, and both convert",
		})
	}
}
