package nativeengine

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// attributes are a request as the API server holds it. They keep audit annotations.
type attributes struct {
	admission.Attributes

	object, old *unstructured.Unstructured
	annotations map[string]string
}

// newAttributes decodes a request. A mutation changes only the decoded object.
func newAttributes(r *admissionv1.AdmissionRequest) (*attributes, error) {
	a := &attributes{annotations: map[string]string{}}
	var err error
	if a.object, err = decode(r.Object.Raw); err != nil {
		return nil, err
	}
	if a.old, err = decode(r.OldObject.Raw); err != nil {
		return nil, err
	}
	options, err := decode(r.Options.Raw)
	if err != nil {
		return nil, err
	}
	info := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups}
	a.Attributes = admission.NewAttributesRecord(orNil(a.object), orNil(a.old), schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), orNil(options), r.DryRun != nil && *r.DryRun, info)
	return a, nil
}

func decode(raw []byte) (*unstructured.Unstructured, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // a request without an object is no error
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decoding the request: %w", err)
	}
	return u, nil
}

// orNil returns an interface that is nil without an object.
func orNil(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}

// AddAnnotation implements admission.Attributes.
func (a *attributes) AddAnnotation(key, value string) error {
	a.annotations[key] = value
	return nil
}

// encode returns the object after mutations; nil without one.
func (a *attributes) encode() ([]byte, error) {
	if a.object == nil {
		return nil, nil
	}
	raw, err := a.object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	return raw, nil
}

// metadata returns that of the object, of a DELETE that of the old one.
func (a *attributes) metadata() *metav1.PartialObjectMetadata {
	u := a.object
	if u == nil {
		u = a.old
	}
	out := &metav1.PartialObjectMetadata{}
	if u != nil {
		out.Name, out.GenerateName, out.Namespace, out.Labels = u.GetName(), u.GetGenerateName(), u.GetNamespace(), u.GetLabels()
	}
	return out
}

// warnings implements warning.Recorder.
type warnings struct{ texts []string }

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }
