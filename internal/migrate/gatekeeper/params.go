package gatekeeper

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// parameters gives expressions the variable params.
func (b *builder) parameters(as conversion.Params) error {
	variable := admissionregistrationv1.Variable{Name: "params"}
	if as == conversion.ParamsObject {
		b.policy.Spec.ParamKind = &admissionregistrationv1.ParamKind{
			APIVersion: constraintsGroup + "/" + constraintsVersion,
			Kind:       b.constraint.Kind,
		}
		b.policy.Spec.Bindings[0].ParamRef = &admissionregistrationv1.ParamRef{
			Name:                    b.constraint.Name,
			ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
		}
		variable.Expression = "!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters"
		if b.definition.public != nil {
			variable.Expression = "dyn(params).?spec.?parameters.orValue({})"
		}
		b.change(
			"spec.parameters",
			"the params are the constraint itself: let Ostiary read it, and keep its CustomResourceDefinition when "+
				"you remove Gatekeeper",
		)
	} else {
		value, err := b.definition.withDefaults(b.constraint.Spec.Parameters)
		if err != nil {
			return b.definition.object.Errorf("spec.crd.spec.validation.openAPIV3Schema", "%v", err)
		}
		if value == nil && b.definition.public != nil {
			value = map[string]any{}
		}
		text, _ := literalText(value)
		variable.Expression = "dyn(" + text + ")"
	}
	b.policy.Spec.Variables = slices.Insert(b.policy.Spec.Variables, 1, variable)
	return nil
}

// withDefaults adds the defaults of the schema, which API servers add to constraints.
func (d *templateDefinition) withDefaults(parameters any) (any, error) {
	v := d.Spec.CRD.Spec.Validation
	if v == nil || len(v.OpenAPIV3Schema) == 0 || !strings.Contains(string(v.OpenAPIV3Schema), `"default"`) {
		return parameters, nil
	}
	external := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal(v.OpenAPIV3Schema, external); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		external,
		internal,
		nil,
	); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	defaulting.Default(parameters, structural)
	return parameters, nil
}

// literalText returns a value of JSON as CEL, and its type. Kubernetes needs elements of equal
// types, or dyn.
func literalText(value any) (text, kind string) {
	switch v := value.(type) {
	case nil:
		return "null", "null"
	case bool:
		return strconv.FormatBool(v), "bool"
	case string:
		return celtext.QuoteText(v), "string"
	case int64:
		return strconv.FormatInt(v, 10), "int"
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), "int"
		}
		return strconv.FormatFloat(v, 'g', -1, 64), "double"
	case []any:
		texts, kind := literalTexts(v)
		return "[" + strings.Join(texts, ", ") + "]", "list(" + kind + ")"
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		values := make([]any, len(keys))
		for i, k := range keys {
			values[i] = v[k]
		}
		texts, kind := literalTexts(values)
		for i, k := range keys {
			texts[i] = celtext.QuoteText(k) + ": " + texts[i]
		}
		return "{" + strings.Join(texts, ", ") + "}", "map(" + kind + ")"
	}
	return "null", "null"
}

// literalTexts returns elements of one type.
func literalTexts(values []any) (texts []string, kind string) {
	same := true
	for i, v := range values {
		text, k := literalText(v)
		texts = append(texts, text)
		same = same && (i == 0 || k == kind)
		kind = k
	}
	if same {
		return texts, kind
	}
	for i, text := range texts {
		texts[i] = "dyn(" + text + ")"
	}
	return texts, "dyn"
}
