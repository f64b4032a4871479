// Package crdschema checks objects as API servers check custom resources: by the schema of a
// CustomResourceDefinition, and by the rules in it.
package crdschema

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Schema is the schema of one version of a custom resource. It is safe for concurrent use.
type Schema struct {
	validator  validation.SchemaValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

// New compiles a schema with its rules.
func New(schema *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil)
	if err != nil {
		return nil, fmt.Errorf("reading a schema: %w", err)
	}
	s := &Schema{}
	if s.validator, _, err = validation.NewSchemaValidator(internal); err != nil {
		return nil, fmt.Errorf("reading a schema: %w", err)
	}
	if s.structural, err = structuralschema.NewStructural(internal); err != nil {
		return nil, fmt.Errorf("reading a schema: %w", err)
	}
	s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s, nil
}

// Check returns the reasons for which API servers reject a new object, besides those in its
// metadata. Its numbers must be int64 or float64, as in an unstructured object.
func (s *Schema) Check(ctx context.Context, object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, s.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(errs) > 0 { // the rules need a valid object
		return errs
	}
	broken, _ := s.rules.Validate(ctx, nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return broken
}
