package classic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
)

// newScope returns the variables that all rules have.
func (v *ruleConverter) newScope() *conditions.Scope {
	request := ce.VariablePlace("request", ce.ShapeOfType[admissionv1.AdmissionRequest]())
	required := func(name string) ce.Place {
		return ce.VariablePlace("request."+name, request.Field(name).Shape)
	}
	request.Members = map[string]ce.Place{
		"object":    v.matching.object,
		"oldObject": v.matching.oldObject(),
		"operation": required("operation"),
		"userInfo":  required("userInfo"),
		"kind":      required("kind"),
		"resource":  required("resource"),
		"uid":       required("uid"),
	}
	userInfo := request.Members["userInfo"]
	userInfo.Members = map[string]ce.Place{
		"username": ce.VariablePlace("request.userInfo.username", ce.ShapeOfKind(ce.KindString)),
	}
	request.Members["userInfo"] = userInfo
	return &conditions.Scope{
		Variables:  map[string]conditions.Value{"request": conditions.Field(request)},
		Notes:      &v.notes,
		Define:     v.out.define,
		Containers: v.containers,
		Unsupported: map[string]string{
			"images":               "only registry, path, name, tag and digest of the images of containers are known",
			"request.roles":        "the bindings of a user are not part of a request",
			"request.clusterRoles": "the bindings of a user are not part of a request",
			"elementIndex":         "CEL has no index of elements",
			"target":               "it is an existing object", "globalContext": "it has data of the cluster",
		},
	}
}

// containers returns a list of containers of the object, and its JMESPath expression.
func (v *ruleConverter) containers(list string) (conditions.Value, string, bool) {
	if !slices.Contains([]string{"containers", "initContainers", "ephemeralContainers"}, list) {
		return conditions.Value{}, "", false
	}
	for _, path := range []string{"spec", "spec.template.spec", "spec.jobTemplate.spec.template.spec"} {
		at := v.matching.object
		if at.Source().String() != "object" { // Kyverno has no images of the old object of a DELETE
			at = ce.NullableObjectPlace("object", at.Shape)
		}
		for _, name := range append(strings.Split(path, "."), list) {
			at = at.Field(name)
		}
		if at.Shape.Kind() == ce.KindList {
			return conditions.Field(at), "request.object." + path + "." + list, true
		}
	}
	return conditions.Value{}, "", false
}

// define adds a variable, and returns its name, which is unique in the rule.
func (c *convertedRule) define(name, expression string) string {
	for n := 2; ; n++ {
		named := func(known admissionregistrationv1.Variable) bool { return known.Name == name }
		i := slices.IndexFunc(c.variables, named)
		if i < 0 {
			c.variables = append(c.variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
			return name
		}
		if c.variables[i].Expression == expression {
			return name
		}
		name = fmt.Sprintf("%s%d", strings.TrimRight(name, "0123456789"), n)
	}
}

// context adds the variables of a context to the scope.
func (v *ruleConverter) context(entries []contextEntry) error {
	scope, err := v.withContext(v.scope, entries)
	if err == nil {
		v.scope = scope
	}
	return err
}

func (v *ruleConverter) withContext(scope *conditions.Scope, entries []contextEntry) (*conditions.Scope, error) {
	for _, e := range entries {
		switch {
		case e.Name == "images":
			return nil, &leftOutError{
				"context",
				"the variable images has the name of the one in which Kyverno parses the images of containers",
				"rename the variable",
			}
		case e.ConfigMap != nil:
			value, err := v.configMap(*e.ConfigMap)
			if err != nil {
				return nil, err
			}
			scope = scope.With(e.Name, value)
		case e.Variable != nil:
			value, err := contextValue(v.withNewObject(scope, *e.Variable), *e.Variable)
			if err != nil {
				return nil, fmt.Errorf("context variable %s: %w", e.Name, err)
			}
			parts := scope.ReadBy(strings.Trim(e.Variable.JMESPath, "{} "))
			scope = scope.With(e.Name, value).WithReads(e.Name, parts)
		case e.APICall != nil:
			called, err := v.apiCall(scope, e.Name, e.APICall)
			if err != nil {
				return nil, err
			}
			scope = called
		case e.GlobalReference != nil:
			read, err := v.globalReference(scope, e.Name, e.GlobalReference)
			if err != nil {
				return nil, err
			}
			scope = read
		case e.ImageRegistry != nil:
			return nil, &leftOutError{
				"context",
				fmt.Sprintf("the variable %s reads a registry, and policies make no network calls", e.Name),
				"use a backend",
			}
		default:
			return nil, &leftOutError{
				"context",
				fmt.Sprintf("the variable %s has a source that policies do not have", e.Name),
				"use params",
			}
		}
	}
	return scope, nil
}

// withNewObject returns the scope of a variable of a context. Where a variable is in braces,
// Kyverno reads the old object of a DELETE instead of the new one, which is null, but not in
// the path of a variable of a context.
func (v *ruleConverter) withNewObject(scope *conditions.Scope, d contextDefinition) *conditions.Scope {
	object := v.matching.object
	if d.Value != nil || strings.Contains(d.JMESPath, "{{") || object.Source().String() == "object" {
		return scope
	}
	request := scope.Variables["request"].Place()
	request.Members = maps.Clone(request.Members)
	request.Members["object"] = ce.NullableObjectPlace("object", object.Shape)
	return scope.With("request", conditions.Field(request))
}

// contextValue converts a variable of a context.
func contextValue(scope *conditions.Scope, d contextDefinition) (conditions.Value, error) {
	var substituted []conditions.Value
	v, err := valueOfDefinition(scope.Collecting(&substituted), d)
	return v.WithSubstituted(substituted), err
}

func valueOfDefinition(scope *conditions.Scope, d contextDefinition) (conditions.Value, error) {
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
	value, err := scope.Definition(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(source), "{{"), "}}"))
	switch {
	case err != nil:
		return value, err
	case d.Default == nil:
		return value.Required()
	}
	return scope.Default(value, d.Default)
}

// configMap makes a ConfigMap the params of the policy. A rule can have one.
func (v *ruleConverter) configMap(c configMap) (conditions.Value, error) {
	if strings.Contains(c.Name+c.Namespace, "{{") {
		return conditions.Value{}, &leftOutError{
			"context",
			"the name of the ConfigMap has a variable, and params have a constant name",
			"use a ConfigMap with a constant name",
		}
	}
	namespace := c.Namespace
	if namespace == "" {
		namespace = "default"
	}
	ref := &admissionregistrationv1.ParamRef{
		Name:                    c.Name,
		Namespace:               namespace,
		ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
	}
	if v.out.paramRef != nil && (v.out.paramRef.Name != ref.Name || v.out.paramRef.Namespace != ref.Namespace) {
		return conditions.Value{}, &leftOutError{
			"context",
			"the rule reads several ConfigMaps, and a policy has params of one kind and name",
			"put their data into one ConfigMap",
		}
	}
	v.out.paramKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	v.out.paramRef = ref
	return conditions.Field(ce.ObjectPlace("params", ce.ShapeOfType[corev1.ConfigMap]())), nil
}
