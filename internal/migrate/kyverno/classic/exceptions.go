package classic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/load"
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// appliedException is an exception, and what became of it.
type appliedException struct {
	policyException
	source *load.Object
	used   bool
	failed []string
	// conditions reports that it is a match condition of a policy, outputs are its objects.
	conditions bool
	outputs    []*conversion.Output
}

// exceptionsOf returns the exceptions of the input, and conversions of those that cannot be
// read.
func exceptionsOf(in *conversion.Input) (exceptions []*appliedException, left []conversion.Conversion) {
	for i := range in.Objects {
		if in.Objects[i].Kind != kindException {
			continue
		}
		c := conversion.Conversion{Source: in.Objects[i]}
		e := &appliedException{source: &in.Objects[i]}
		if c.Decode(&e.policyException) {
			exceptions = append(exceptions, e)
		} else {
			left = append(left, c)
		}
	}
	return exceptions, left
}

// refersTo reports whether the exception names a rule.
func (e *appliedException) refersTo(p *clusterPolicy, rule string) bool {
	name := p.Name
	if p.Kind == kindPolicy {
		name = p.Namespace + "/" + p.Name
	}
	return slices.ContainsFunc(e.Spec.Exceptions, func(r exceptionRef) bool {
		return r.PolicyName == name &&
			slices.ContainsFunc(r.RuleNames, func(n string) bool { return scalar.MatchesWildcard(n, rule) })
	})
}

// conversion says what became of the exception.
func (e *appliedException) conversion() conversion.Conversion {
	c := conversion.Conversion{Source: *e.source}
	for _, why := range e.failed {
		c.LeaveOut("spec", why, "add a matchCondition to the policy")
	}
	switch {
	case len(e.failed) > 0:
	case !e.used:
		c.LeaveOut(
			"spec.exceptions",
			"no converted rule of the input has such a name",
			"add the file of the policy with -f",
		)
	case e.conditions:
		c.Add(conversion.Row{
			Outcome: conversion.Changed,
			Detail:  "it is a matchCondition of the policy: clients that can update the policy can change the exception",
		})
	default:
		c.Add(conversion.Row{
			Outcome: conversion.Changed,
			Output:  e.outputs[0],
			Detail:  "clients that may use webhookpolicies/exceptions in the namespace can change it, and errors are not exempt",
		})
	}
	c.Outputs = e.outputs
	return c
}

// except adds the exceptions of a rule as match conditions.
func (b *builder) except(out *convertedRule, c catalogue) {
	for _, e := range b.exceptions {
		if !e.refersTo(b.source, out.name) {
			continue
		}
		if objects, ok := b.objects(e, out, c); ok {
			out.excepted = append(out.excepted, objects...)
			continue
		}
		err := b.exceptTemplates(e, out)
		var condition ce.Expression
		if err == nil {
			condition, err = e.condition(out, c)
		}
		if err != nil {
			e.failed = append(e.failed, fmt.Sprintf("for the rule %s: %v", out.name, err))
			note := fmt.Sprintf("the exception %s is left out: the rule applies to what it exempts", e.Name)
			out.notes = append(out.notes, note)
			continue
		}
		e.used, e.conditions = true, true
		out.condition("exception-"+e.Name, ce.Not(condition))
		out.notes = append(out.notes, fmt.Sprintf("the exception %s is a match condition", e.Name))
		if out.conditionsFail {
			out.notes = append(out.notes, "an exempt object passes: Kyverno denies it if it cannot evaluate preconditions")
		}
	}
}

// exceptTemplates returns an error for an exception of a rule that is extended to pod
// templates, unless it exempts workloads and Pods alike. Expressions read the Pod of the
// template then, which has neither the kind nor the name and the labels of the workload.
func (b *builder) exceptTemplates(e *appliedException, out *convertedRule) error {
	kinds := b.controllerKinds()
	if !out.extends || !b.extends() || len(kinds) == 0 {
		return nil
	}
	generated := []string{"autogen-" + out.name}
	if slices.Contains(kinds, "CronJob") {
		generated = append(generated, "autogen-cronjob-"+out.name)
	}
	for _, name := range generated {
		if !e.refersTo(b.source, name) {
			return fmt.Errorf("it does not name the rule %s, and the rule is extended to pod templates", name)
		}
	}
	blocks, _ := e.Spec.Match.filters()
	for _, f := range blocks {
		if err := f.Resources.exemptsTemplates(append([]string{"Pod"}, kinds...)); err != nil {
			return err
		}
	}
	text, err := json.Marshal(e.Spec.Conditions)
	if err != nil || strings.Contains(strings.ToLower(string(text)), "object") {
		return fmt.Errorf("its conditions read the object, which is the Pod of the template instead of the workload")
	}
	return nil
}

// exemptsTemplates returns an error unless a block of an exception is for all of some kinds,
// whatever their objects are.
func (d *resourceDescription) exemptsTemplates(kinds []string) error {
	for _, kind := range kinds {
		named := func(text string) bool {
			k, ok := parseKind(text)
			return ok && k.subresource == "" && scalar.MatchesWildcard(k.kind, kind)
		}
		if len(d.Kinds) > 0 && !slices.ContainsFunc(d.Kinds, named) {
			return fmt.Errorf("it is not for the kind %s, and the rule is extended to pod templates", kind)
		}
	}
	if d.names() {
		return fmt.Errorf("it names objects, labels or annotations, and pod templates do not have those of the workload")
	}
	return nil
}

// condition returns an expression that is true for requests that the exception exempts.
func (e *appliedException) condition(out *convertedRule, c catalogue) (ce.Expression, error) {
	if len(e.Spec.PodSecurity) > 0 {
		return ce.False(), fmt.Errorf(
			"podSecurity is left out: the plugin PodSecurity excludes no controls, and the exception excludes %s",
			describeExclusions(e.Spec.PodSecurity),
		)
	}
	m, err := newMatching(&rule{Match: e.Spec.Match}, c, operationSet{
		admissionregistrationv1.Create,
		admissionregistrationv1.Update,
		admissionregistrationv1.Delete,
		admissionregistrationv1.Connect,
	})
	if err != nil {
		return ce.False(), err
	}
	m.useObjectOf(out.rules)
	blocks, all := e.Spec.Match.filters()
	matched, err := m.combine(blocks, all, true)
	if err != nil || e.Spec.Conditions == nil {
		return matched, err
	}
	v := &ruleConverter{matching: m, rule: &rule{Name: out.name}, out: out}
	when, err := v.newScope().Block(*e.Spec.Conditions)
	return ce.And(matched, when.Expression), err
}
