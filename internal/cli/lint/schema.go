package lint

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/config/crd"
)

// schema is what API servers check before Ostiary sees a policy: the schema of its
// CustomResourceDefinition, and the rules in it.
type schema struct {
	validator  validation.SchemaValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

func newSchema() (*schema, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(crd.WebhookPolicies, definition); err != nil {
		return nil, fmt.Errorf("reading the definition of policies: %w", err)
	}
	if n := len(definition.Spec.Versions); n != 1 {
		return nil, fmt.Errorf("reading the definition of policies: %d versions, want one", n)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		return nil, fmt.Errorf("reading the schema of policies: %w", err)
	}
	s := &schema{}
	var err error
	if s.validator, _, err = validation.NewSchemaValidator(internal); err != nil {
		return nil, fmt.Errorf("reading the schema of policies: %w", err)
	}
	if s.structural, err = structuralschema.NewStructural(internal); err != nil {
		return nil, fmt.Errorf("reading the schema of policies: %w", err)
	}
	s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s, nil
}

// check returns the reasons for which API servers reject a policy.
func (s *schema) check(ctx context.Context, raw []byte) (field.ErrorList, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, u); err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.NameIsDNSSubdomain(u.GetName(), false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), u.GetName(), problem))
	}
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, s.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, u.Object)...)
	if len(errs) > 0 { // the rules need a valid object
		return errs, nil
	}
	broken, _ := s.rules.Validate(ctx, nil, s.structural, u.Object, nil, celconfig.RuntimeCELCostBudget)
	return broken, nil
}
