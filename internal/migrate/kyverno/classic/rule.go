package classic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

// converter converts one rule.
type converter struct {
	policy   *clusterPolicy
	rule     *rule
	matching *matching
	scope    *conditions.Scope
	notes    []string
	fails    bool // the check of an element can fail
	out      *converted
}

// converted is a rule as the parts of a policy.
type converted struct {
	name            string
	conditions      []admissionregistrationv1.MatchCondition
	variables       []admissionregistrationv1.Variable
	validations     []admissionregistrationv1.Validation
	annotations     []admissionregistrationv1.AuditAnnotation
	mutations       []admissionregistrationv1.Mutation
	podSecurity     *standard
	paramKind       *admissionregistrationv1.ParamKind
	paramRef        *admissionregistrationv1.ParamRef
	rules           []admissionregistrationv1.NamedRuleWithOperations
	extends         bool // Kyverno extends the rule to workloads if it extends the policy
	notes           []string
	failureAction   string
	failureOverride []override
	ratchet         bool
	guards          []ce.Expression // about the namespace
	deletes         bool            // the object can be in oldObject
	selector        *metav1.LabelSelector
}

// convertRule converts a rule, or returns why it is left out.
func convertRule(p *clusterPolicy, r *rule, c catalogue) (*converted, error) {
	if err := unsupported(r); err != nil {
		return nil, err
	}
	operations, preconditions := operationsOf(r)
	m, err := newMatching(r, c, operations)
	if err != nil {
		return nil, err
	}
	v := &converter{policy: p, rule: r, matching: m, out: &converted{name: r.Name, rules: m.rules, extends: m.extends}}
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
	v.out.notes = slices.Concat(m.notes, v.notes)
	v.out.deletes, v.out.selector = m.deletes, m.selected
	return v.out, err
}

// condition adds a match condition. Match conditions have no namespaceObject: one that
// reads it is a variable that guards the other expressions.
func (c *converted) condition(name string, e ce.Expression) {
	switch {
	case e.IsTrue():
	case strings.Contains(e.String(), "namespaceObject"):
		c.guards = append(c.guards, e)
	default:
		c.conditions = append(c.conditions, admissionregistrationv1.MatchCondition{Name: name, Expression: e.Bool().String()})
	}
}

// finish adds the variables of the rule that its expressions read.
func (c *converted) finish() error {
	if len(c.guards) > 0 {
		if c.podSecurity != nil {
			return &leftOutError{"match", "the plugin PodSecurity has no conditions about labels of namespaces", "use a namespaceSelector in match"}
		}
		c.guard(ce.And(c.guards...))
	}
	if c.deletes && c.uses("variables."+variableResource) {
		resource := admissionregistrationv1.Variable{Name: variableResource, Expression: "object != null ? object : oldObject"}
		c.variables = append([]admissionregistrationv1.Variable{resource}, c.variables...)
	}
	return nil
}

// guard makes the expressions have no effect unless the namespace matches.
func (c *converted) guard(e ce.Expression) {
	const guard = "variables.matchesNamespace"
	c.variables = append([]admissionregistrationv1.Variable{{Name: "matchesNamespace", Expression: e.Bool().String()}}, c.variables...)
	for i := range c.validations {
		v := &c.validations[i]
		v.Expression = ce.Or(ce.Not(ce.Term(guard)), ce.Raw(v.Expression, ce.Conditional)).String()
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
func (c *converted) uses(text string) bool {
	return slices.ContainsFunc(c.conditions, func(m admissionregistrationv1.MatchCondition) bool { return strings.Contains(m.Expression, text) }) ||
		slices.ContainsFunc(c.variables, func(v admissionregistrationv1.Variable) bool { return strings.Contains(v.Expression, text) }) ||
		slices.ContainsFunc(c.validations, func(v admissionregistrationv1.Validation) bool {
			return strings.Contains(v.Expression+v.MessageExpression, text)
		})
}

// unsupported returns an error for a kind of rule that policies do not have.
func unsupported(r *rule) error {
	switch {
	case r.Generate != nil:
		return &leftOutError{"generate", "Ostiary creates no objects", "use a controller for these objects"}
	case len(r.VerifyImages) > 0:
		return &leftOutError{"verifyImages", "Ostiary verifies no signatures of images", "use the plugin ImagePolicyWebhook with a verifier"}
	case r.Mutate != nil && len(r.Mutate.Targets) > 0:
		return &leftOutError{"mutate.targets", "Ostiary changes only the object of a request, no existing objects", "change them once with kubectl"}
	case r.ImageExtractors != nil:
		return &leftOutError{"imageExtractors", "expressions have no variable images", "read the fields of the images in CEL"}
	case r.Validate == nil && r.Mutate == nil:
		return &leftOutError{"", "the rule has neither validate nor mutate", "add one, or remove the rule"}
	case r.Validate == nil:
		return nil
	case r.Validate.Manifests != nil:
		return &leftOutError{"validate.manifests", "Ostiary verifies no signatures of manifests", "verify them before they are applied"}
	case r.Validate.Assert != nil:
		return &leftOutError{"validate.assert", "assertion trees have no counterpart", "write the assertions in CEL"}
	}
	return nil
}

// newScope returns the variables that all rules have.
func (v *converter) newScope() *conditions.Scope {
	request := ce.VariablePlace("request", ce.ShapeOfType[admissionv1.AdmissionRequest]())
	required := func(name string) ce.Place {
		return ce.VariablePlace("request."+name, request.Field(name).Shape)
	}
	request.Members = map[string]ce.Place{
		"object": v.matching.object, "oldObject": ce.ObjectPlace("oldObject", v.matching.object.Shape),
		"operation": required("operation"), "userInfo": required("userInfo"), "kind": required("kind"), "resource": required("resource"), "uid": required("uid"),
	}
	userInfo := request.Members["userInfo"]
	userInfo.Members = map[string]ce.Place{"username": ce.VariablePlace("request.userInfo.username", ce.ShapeOfKind(ce.KindString))}
	request.Members["userInfo"] = userInfo
	return &conditions.Scope{
		Variables: map[string]conditions.Value{"request": conditions.Field(request)},
		Notes:     &v.notes,
		Unsupported: map[string]string{
			"images": "Kyverno parses names of images", "request.roles": "the bindings of a user are not part of a request",
			"request.clusterRoles": "the bindings of a user are not part of a request", "elementIndex": "CEL has no index of elements",
			"target": "it is an existing object", "globalContext": "it has data of the cluster",
		},
	}
}

// context adds the variables of a context to the scope.
func (v *converter) context(entries []contextEntry) error {
	scope, err := v.withContext(v.scope, entries)
	if err == nil {
		v.scope = scope
	}
	return err
}

func (v *converter) withContext(scope *conditions.Scope, entries []contextEntry) (*conditions.Scope, error) {
	for _, e := range entries {
		switch {
		case e.ConfigMap != nil:
			value, err := v.configMap(*e.ConfigMap)
			if err != nil {
				return nil, err
			}
			scope = scope.With(e.Name, value)
		case e.Variable != nil:
			value, err := definition(scope, *e.Variable)
			if err != nil {
				return nil, fmt.Errorf("context variable %s: %w", e.Name, err)
			}
			scope = scope.With(e.Name, value)
		case e.APICall != nil:
			return nil, &leftOutError{"context", fmt.Sprintf("the variable %s reads the API with Kyverno's rights", e.Name), "use params, or authorizer"}
		case e.ImageRegistry != nil:
			return nil, &leftOutError{"context", fmt.Sprintf("the variable %s reads a registry, and policies make no network calls", e.Name), "use a backend"}
		default:
			return nil, &leftOutError{"context", fmt.Sprintf("the variable %s has a source that policies do not have", e.Name), "use params"}
		}
	}
	return scope, nil
}

// definition converts a variable of a context.
func definition(scope *conditions.Scope, d contextDefinition) (conditions.Value, error) {
	source := d.JMESPath
	switch {
	case d.Value != nil && source != "":
		value, err := scope.Any(d.Value)
		if err != nil {
			return value, err
		}
		return scope.JMESPathOf(source, value)
	case d.Value != nil:
		return scope.Any(d.Value)
	}
	value, err := scope.JMESPath(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(source), "{{"), "}}"))
	if err != nil || d.Default == nil {
		return value, err
	}
	return scope.Default(value, d.Default)
}

// configMap makes a ConfigMap the params of the policy. A rule can have one.
func (v *converter) configMap(c configMap) (conditions.Value, error) {
	if strings.Contains(c.Name+c.Namespace, "{{") {
		return conditions.Value{}, &leftOutError{"context", "the name of the ConfigMap has a variable, and params have a constant name", "use a ConfigMap with a constant name"}
	}
	namespace := c.Namespace
	if namespace == "" {
		namespace = "default"
	}
	ref := &admissionregistrationv1.ParamRef{Name: c.Name, Namespace: namespace, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	if v.out.paramRef != nil && (v.out.paramRef.Name != ref.Name || v.out.paramRef.Namespace != ref.Namespace) {
		return conditions.Value{}, &leftOutError{"context", "the rule reads several ConfigMaps, and a policy has params of one kind and name", "put their data into one ConfigMap"}
	}
	v.out.paramKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	v.out.paramRef = ref
	return conditions.Field(ce.ObjectPlace("params", ce.ShapeOfType[corev1.ConfigMap]())), nil
}

// conditions adds match conditions for match, exclude and preconditions.
func (v *converter) conditions(preconditions *blocks) error {
	v.out.condition("match", v.matching.match)
	v.out.condition("exclude", ce.Not(v.matching.exclude))
	named, notes := conversion.ConditionNames(v.rule.CELPreconditions)
	v.out.conditions, v.notes = append(v.out.conditions, named...), append(v.notes, notes...)
	applies, err := v.blocks(v.scope, preconditions)
	if err != nil {
		return fmt.Errorf("preconditions: %w", err)
	}
	v.out.condition("preconditions", applies.Expression)
	return nil
}

func (v *converter) blocks(scope *conditions.Scope, b *blocks) (conditions.Result, error) {
	switch {
	case b == nil:
		return conditions.Result{Expression: ce.True()}, nil
	case b.list != nil:
		return scope.All(b.list)
	}
	return scope.Block(b.Block)
}

// validate converts a validation.
func (v *converter) validate(c *validation) error {
	v.out.failureAction, v.out.failureOverride = c.FailureAction, c.FailureActionOverrides
	v.out.ratchet = c.AllowExistingViolations == nil || *c.AllowExistingViolations
	switch {
	case c.CEL != nil:
		return v.cel(c.CEL, c.Message)
	case c.PodSecurity != nil:
		return v.podSecurity(c.PodSecurity)
	}
	var e ce.Expression
	var err error
	if c.ForEach != nil {
		if e, err = v.forEach(v.scope, c.ForEach, 0); v.fails {
			v.notes = append(v.notes, "a check of an element that cannot be evaluated follows failurePolicy: Kyverno ignores it unless the element is the last one")
		}
	} else {
		e, err = v.check(v.scope, c.checks, v.matching.object)
	}
	if err != nil {
		return err
	}
	return v.add(e, c.Message)
}

// add adds a validation.
func (v *converter) add(e ce.Expression, message string) error {
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
		validation.MessageExpression, validation.Message = value.String(), fallback(text)
	}
	v.out.validations = append(v.out.validations, validation)
	return nil
}

func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

// fallback is the message if the evaluation of its variables fails.
func fallback(message string) string {
	return strings.NewReplacer("{{", "<", "}}", ">").Replace(message)
}

// check converts a pattern, some patterns, or conditions that deny.
func (v *converter) check(scope *conditions.Scope, c checks, object ce.Place) (ce.Expression, error) {
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
	return ce.False(), &leftOutError{"validate", "the rule has none of pattern, anyPattern, deny, foreach, podSecurity and cel", "add one, or remove the rule"}
}

// forEach converts checks of the elements of lists.
func (v *converter) forEach(scope *conditions.Scope, checks []forEach, level int) (ce.Expression, error) {
	var all []ce.Expression
	for i, f := range checks {
		e, err := v.each(scope, f, level)
		if err != nil {
			return ce.False(), fmt.Errorf("foreach[%d]: %w", i, err)
		}
		all = append(all, e)
	}
	return ce.And(all...), nil
}

func (v *converter) each(scope *conditions.Scope, f forEach, level int) (ce.Expression, error) {
	return scope.ForEach(f.List, func(element conditions.Value) (ce.Expression, error) {
		inner := scope.With("element", element).With(fmt.Sprintf("element%d", level), element)
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
		v.fails = v.fails || applies.Fails
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

// cel converts a rule in CEL.
func (v *converter) cel(c *celRule, message string) error {
	for _, e := range c.Expressions {
		if e.Message == "" && e.MessageExpression == "" {
			e.Message = oneLine(message)
		}
		e.Message = oneLine(e.Message)
		v.out.validations = append(v.out.validations, e)
	}
	v.out.variables = append(v.out.variables, c.Variables...)
	v.out.annotations = c.AuditAnnotations
	v.out.paramKind, v.out.paramRef = c.ParamKind, c.ParamRef
	v.out.ratchet = false
	return nil
}

// reason returns the field, the reason and an alternative for an error about a rule.
func reason(err error) leftOutError {
	var left *leftOutError
	if errors.As(err, &left) {
		return *left
	}
	return leftOutError{why: err.Error(), alternative: "write this rule in CEL"}
}
