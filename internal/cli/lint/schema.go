package lint

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/crdschema"
)

// schema is what API servers check before Ostiary sees a policy or an exception: the schema of its
// CustomResourceDefinition, and the rules in it.
type schema struct{ *crdschema.Schema }

func newSchema(text []byte) (*schema, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, definition); err != nil {
		return nil, fmt.Errorf("reading a definition: %w", err)
	}
	if n := len(definition.Spec.Versions); n != 1 {
		return nil, fmt.Errorf("reading a definition: %d versions, want one", n)
	}
	compiled, err := crdschema.New(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("reading a definition: %w", err)
	}
	return &schema{compiled}, nil
}

// check returns the reasons for which API servers reject a policy or an exception.
func (s *schema) check(ctx context.Context, raw []byte) (field.ErrorList, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, u); err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.NameIsDNSSubdomain(u.GetName(), false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), u.GetName(), problem))
	}
	return append(errs, s.Check(ctx, u.Object)...), nil
}
