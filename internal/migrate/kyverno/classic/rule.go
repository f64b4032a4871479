package classic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/pattern"
)

// leftOutError is about a rule that is left out, with what the user can do.
type leftOutError struct {
	field, why, alternative string
}

func (e *leftOutError) Error() string { return e.why }

// ruleConverter converts one rule.
type ruleConverter struct {
	policy   *clusterPolicy
	rule     *rule
	matching *ruleMatching
	global   map[string]*globalEntry
	scope    *conditions.Scope
	notes    []string
	fails    bool // a check can fail
	skips    bool // preconditions of an element can fail
	out      *convertedRule
}

// convertedRule is a rule as the parts of a policy.
type convertedRule struct {
	name            string
	conditions      []admissionregistrationv1.MatchCondition
	lookups         []*ruleLookup
	variables       []admissionregistrationv1.Variable
	validations     []admissionregistrationv1.Validation
	annotations     []admissionregistrationv1.AuditAnnotation
	mutations       []admissionregistrationv1.Mutation
	podSecurity     *podSecurityStandard
	paramKind       *admissionregistrationv1.ParamKind
	paramRef        *admissionregistrationv1.ParamRef
	rules           []admissionregistrationv1.NamedRuleWithOperations
	extends         bool     // Kyverno extends the rule to workloads if it extends the policy
	templates       []string // kinds of workloads that the rule names and whose templates it checks
	notes           []string
	failureAction   string
	failureOverride []override
	ratchet         bool
	fails           bool            // the evaluation can fail
	conditionsFail  bool            // the evaluation of preconditions can fail
	guards          []ce.Expression // about the namespace
	excepted        []excepted
	deletes         bool // the object can be in oldObject
	selector        *metav1.LabelSelector
}

// convertRule converts a rule, or returns why it is left out.
func convertRule(p *clusterPolicy, r *rule, c catalogue, global map[string]*globalEntry) (*convertedRule, error) {
	if err := unsupportedRule(r); err != nil {
		return nil, err
	}
	operations, preconditions := operationsOf(r)
	m, err := newMatching(r, c, operations)
	if err != nil {
		return nil, err
	}
	v := &ruleConverter{
		policy:   p,
		rule:     r,
		matching: m,
		global:   global,
		out:      &convertedRule{name: r.Name, rules: m.rules, extends: m.extends},
	}
	v.scope = v.newScope()
	if err := v.context(r.Context); err != nil {
		return nil, err
	}
	if err := v.conditions(preconditions); err != nil {
		return nil, err
	}
	if r.Mutate != nil {
		err = v.mutate(r.Mutate)
	} else {
		err = v.validate(r.Validate)
	}
	v.noteIgnoredErrors()
	v.out.notes, v.out.fails = slices.Concat(m.notes, v.notes), v.fails
	v.out.deletes, v.out.selector = m.deletes, m.selected
	return v.out, err
}

// condition adds a match condition. Match conditions have no namespaceObject: one that
// reads it is a variable that guards the other expressions.
func (c *convertedRule) condition(name string, e ce.Expression) {
	switch {
	case e.IsTrue():
	case strings.Contains(e.String(), "namespaceObject"):
		c.guards = append(c.guards, e)
	default:
		c.conditions = append(
			c.conditions,
			admissionregistrationv1.MatchCondition{Name: name, Expression: e.Bool().String()},
		)
	}
}

// finish adds the variables of the rule that its expressions read.
func (c *convertedRule) finish() error {
	if len(c.guards) > 0 {
		if c.podSecurity != nil {
			return &leftOutError{
				"match",
				"the plugin PodSecurity has no conditions about labels of namespaces",
				"use a namespaceSelector in match",
			}
		}
		c.guard(ce.And(c.guards...))
	}
	if err := c.finishLookups(); err != nil {
		return err
	}
	if c.podSecurity != nil && len(c.lookups) > 0 {
		return &leftOutError{"context", "a plugin reads no lookups", "write the rule in CEL"}
	}
	if c.deletes && c.uses("variables."+variableResource) {
		resource := admissionregistrationv1.Variable{
			Name:       variableResource,
			Expression: conversion.ObjectOfAnyOperation,
		}
		c.variables = append([]admissionregistrationv1.Variable{resource}, c.variables...)
	}
	return nil
}

// guard makes the expressions have no effect unless the namespace matches. A disjunction would hide a failure of the
// guard behind a validation that is true, so the validations are conditional.
func (c *convertedRule) guard(e ce.Expression) {
	const guard = "variables.matchesNamespace"
	c.variables = append(
		[]admissionregistrationv1.Variable{{Name: "matchesNamespace", Expression: e.Bool().String()}},
		c.variables...,
	)
	for i := range c.validations {
		v := &c.validations[i]
		v.Expression = guard + " ? (" + v.Expression + ") : true"
	}
	for i := range c.annotations {
		a := &c.annotations[i]
		a.ValueExpression = guard + " ? (" + a.ValueExpression + ") : null"
	}
	for i := range c.mutations {
		if a := c.mutations[i].ApplyConfiguration; a != nil {
			a.Expression = guard + " ? (" + a.Expression + ") : Object{}"
		}
		if p := c.mutations[i].JSONPatch; p != nil {
			p.Expression = guard + " ? (" + p.Expression + ") : []"
		}
	}
}

// uses reports whether an expression of the rule has a text.
func (c *convertedRule) uses(text string) bool {
	return slices.ContainsFunc(c.lookups, func(l *ruleLookup) bool { return strings.Contains(l.RequestKeys, text) }) ||
		slices.ContainsFunc(
			c.conditions,
			func(m admissionregistrationv1.MatchCondition) bool { return strings.Contains(m.Expression, text) },
		) ||
		slices.ContainsFunc(
			c.variables,
			func(v admissionregistrationv1.Variable) bool { return strings.Contains(v.Expression, text) },
		) ||
		slices.ContainsFunc(c.validations, func(v admissionregistrationv1.Validation) bool {
			return strings.Contains(v.Expression+v.MessageExpression, text)
		})
}

// unsupportedRule returns an error for a kind of rule that policies do not have.
func unsupportedRule(r *rule) error {
	switch {
	case r.Generate != nil:
		return &leftOutError{"generate", "Ostiary creates no objects", "use a controller for these objects"}
	case len(r.VerifyImages) > 0:
		return &leftOutError{
			"verifyImages",
			"Ostiary verifies no signatures of images",
			"use the plugin ImagePolicyWebhook with a verifier",
		}
	case r.Mutate != nil && len(r.Mutate.Targets) > 0:
		return &leftOutError{
			"mutate.targets",
			"Ostiary changes only the object of a request, no existing objects",
			"change them once with kubectl",
		}
	case r.ImageExtractors != nil:
		return &leftOutError{
			"imageExtractors",
			"expressions have no variable images",
			"read the fields of the images in CEL",
		}
	case r.Validate == nil && r.Mutate == nil:
		return &leftOutError{"", "the rule has neither validate nor mutate", "add one, or remove the rule"}
	case r.Validate == nil:
		return nil
	case r.Validate.Manifests != nil:
		return &leftOutError{
			"validate.manifests",
			"Ostiary verifies no signatures of manifests",
			"verify them before they are applied",
		}
	case r.Validate.Assert != nil:
		return &leftOutError{"validate.assert", "assertion trees have no counterpart", "write the assertions in CEL"}
	}
	return nil
}

// conditions adds match conditions for match, exclude and preconditions.
func (v *ruleConverter) conditions(preconditions *blocks) error {
	v.out.condition("match", v.matching.match)
	v.out.condition("exclude", ce.Not(v.matching.exclude))
	named, notes := conversion.ConditionNames(v.rule.CELPreconditions)
	v.out.conditions, v.notes = append(v.out.conditions, named...), append(v.notes, notes...)
	applies, err := v.blocks(v.scope, preconditions)
	if err != nil {
		return fmt.Errorf("preconditions: %w", err)
	}
	v.noteOperations(applies)
	v.out.conditionsFail = applies.Fails
	e := applies.Expression
	if m := v.rule.Mutate; m != nil && len(m.ForEach) == 0 && preconditions != nil {
		evaluated, err := v.scope.EvaluatedKeys(preconditions.Any)
		if err != nil {
			return fmt.Errorf("preconditions: %w", err)
		}
		e = ce.And(e, evaluated)
	}
	v.out.condition("preconditions", e)
	return nil
}

func (v *ruleConverter) blocks(scope *conditions.Scope, b *blocks) (conditions.Result, error) {
	switch {
	case b == nil:
		return conditions.Result{Expression: ce.True()}, nil
	case b.list != nil:
		return scope.All(b.list)
	}
	return scope.Block(b.Block)
}

// validate converts a validation.
func (v *ruleConverter) validate(c *validation) error {
	v.out.failureAction, v.out.failureOverride = c.FailureAction, c.FailureActionOverrides
	v.out.ratchet = v.mayRatchet()
	switch {
	case c.CEL != nil:
		return v.cel(c.CEL, c.Message)
	case c.PodSecurity != nil:
		return v.podSecurity(c.PodSecurity)
	}
	var e ce.Expression
	var err error
	if c.ForEach != nil {
		if e, err = v.forEach(v.scope, c.ForEach, 0); v.skips {
			v.notes = append(
				v.notes,
				"an element of foreach whose preconditions cannot be evaluated follows failurePolicy: Kyverno ignores it",
			)
		}
	} else {
		e, err = v.check(v.scope, c.checks, v.matching.object)
	}
	if err != nil {
		return err
	}
	return v.addValidation(e, c.Message)
}

// addValidation adds a validation.
func (v *ruleConverter) addValidation(e ce.Expression, message string) error {
	validation := admissionregistrationv1.Validation{Expression: e.Bool().String()}
	text := oneLine(message)
	if text == "" {
		text = fmt.Sprintf("rule %s failed", v.rule.Name)
	}
	value, err := v.scope.Text(text)
	switch {
	case err != nil:
		v.notes = append(v.notes, fmt.Sprintf("the message has no variables: %v", err))
		validation.Message = text
	case value.IsConstant():
		validation.Message = text
	default:
		validation.MessageExpression, validation.Message = value.String(), constantMessage(text)
	}
	v.out.validations = append(v.out.validations, validation)
	return nil
}

func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

// constantMessage is the message if the evaluation of its variables fails.
func constantMessage(message string) string {
	return strings.NewReplacer("{{", "<", "}}", ">").Replace(message)
}

// check converts a pattern, some patterns, or conditions that deny.
func (v *ruleConverter) check(scope *conditions.Scope, c checks, object ce.Place) (ce.Expression, error) {
	switch {
	case c.Deny != nil:
		denied, err := v.blocks(scope, c.Deny.Conditions)
		if err != nil {
			return ce.False(), fmt.Errorf("deny.conditions: %w", err)
		}
		v.fails = v.fails || denied.Fails
		return ce.Not(denied.Expression), nil
	case c.Pattern != nil:
		e, err := pattern.Compile(c.Pattern, object)
		if err != nil {
			return e, fmt.Errorf("pattern: %w", err)
		}
		return e, nil
	case c.AnyPattern != nil:
		return pattern.CompileAny(c.AnyPattern, object)
	}
	return ce.False(), &leftOutError{
		"validate",
		"the rule has none of pattern, anyPattern, deny, foreach, podSecurity and cel",
		"add one, or remove the rule",
	}
}

// forEach converts checks of the elements of lists.
func (v *ruleConverter) forEach(scope *conditions.Scope, checks []forEach, level int) (ce.Expression, error) {
	var all []ce.Expression
	for i, f := range checks {
		e, err := v.checkElements(scope, f, level)
		if err != nil {
			return ce.False(), fmt.Errorf("foreach[%d]: %w", i, err)
		}
		all = append(all, e)
	}
	return ce.And(all...), nil
}

func (v *ruleConverter) checkElements(scope *conditions.Scope, f forEach, level int) (ce.Expression, error) {
	return scope.ForEach(f.List, func(element conditions.Value) (ce.Expression, error) {
		inner := scope.With("element", element).With(fmt.Sprintf("element%d", level), element)
		inner.List = strings.TrimSpace(f.List)
		inner, err := v.withContext(inner, f.Context)
		if err != nil {
			return ce.False(), err
		}
		applies := conditions.Result{Expression: ce.True()}
		if f.Preconditions != nil {
			if applies, err = inner.Block(*f.Preconditions); err != nil {
				return ce.False(), fmt.Errorf("preconditions: %w", err)
			}
		}
		v.fails, v.skips = v.fails || applies.Fails, v.skips || applies.Fails
		var ok ce.Expression
		if f.ForEach != nil {
			ok, err = v.forEach(inner, f.ForEach, level+1)
		} else {
			object := v.matching.object
			if element.IsMap() && (f.ElementScope == nil || *f.ElementScope) {
				object = element.Place()
			}
			ok, err = v.check(inner, f.checks, object)
		}
		return ce.Or(ce.Not(applies.Expression), ok), err
	})
}

// reasonOf returns the field, the reason and an alternative for an error about a rule.
func reasonOf(err error) leftOutError {
	var left *leftOutError
	if errors.As(err, &left) {
		return *left
	}
	return leftOutError{why: err.Error(), alternative: "write this rule in CEL"}
}
