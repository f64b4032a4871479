package offline

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/cli/load"
)

// withObjects are attributes with the objects of a request.
type withObjects struct {
	admission.Attributes
	object, old runtime.Object
}

// GetObject implements admission.Attributes.
func (a withObjects) GetObject() runtime.Object { return a.object }

// GetOldObject implements admission.Attributes.
func (a withObjects) GetOldObject() runtime.Object { return a.old }

// partial returns the metadata of an object that selectors need; nil without an object.
func partial(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // a request without an object is no error
	}
	var o struct {
		Metadata *load.Metadata `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	if o.Metadata == nil { // the API server does not select such objects by labels
		return nil, nil //nolint:nilnil // as above
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Metadata.Name, Namespace: o.Metadata.Namespace, Labels: o.Metadata.Labels}}, nil
}

// whole returns an object; nil without one.
func whole(raw []byte) runtime.Object {
	u := &unstructured.Unstructured{}
	if len(raw) == 0 || u.UnmarshalJSON(raw) != nil {
		return nil
	}
	return u
}
