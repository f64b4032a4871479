package nativeengine

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// NewAttributes decodes a request as the API server holds it. A mutation changes the decoded
// object and not the request.
func NewAttributes(r *admissionv1.AdmissionRequest) (admission.Attributes, error) {
	var objects [3]runtime.Object
	for i, raw := range [][]byte{r.Object.Raw, r.OldObject.Raw, r.Options.Raw} {
		if len(raw) == 0 {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("decoding the request: %w", err)
		}
		objects[i] = u
	}
	return AttributesOf(r, objects[0], objects[1], objects[2]), nil
}

// AttributesOf returns a request with objects that are decoded already. An object that the
// request does not have is nil.
func AttributesOf(r *admissionv1.AdmissionRequest, object, old, options runtime.Object) admission.Attributes {
	info := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups}
	return admission.NewAttributesRecord(object, old, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), options,
		r.DryRun != nil && *r.DryRun, info)
}

// Criteria are matchResources whose selectors are parsed when the matcher asks for them. An
// absent selector matches everything. They implement matching.MatchCriteria.
type Criteria struct {
	admissionregistrationv1.MatchResources
}

// GetMatchResources implements matching.MatchCriteria.
func (c Criteria) GetMatchResources() admissionregistrationv1.MatchResources { return c.MatchResources }

// GetParsedNamespaceSelector implements matching.MatchCriteria.
func (c Criteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return parseSelector(c.NamespaceSelector)
}

// GetParsedObjectSelector implements matching.MatchCriteria.
func (c Criteria) GetParsedObjectSelector() (labels.Selector, error) {
	return parseSelector(c.ObjectSelector)
}

func parseSelector(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(selector)
}

// WithDefaults returns matchResources with the defaults of API servers; nil stays nil.
func WithDefaults(m *admissionregistrationv1.MatchResources) *admissionregistrationv1.MatchResources {
	if m == nil {
		return nil
	}
	out := *m
	if out.NamespaceSelector == nil {
		out.NamespaceSelector = &metav1.LabelSelector{}
	}
	if out.ObjectSelector == nil {
		out.ObjectSelector = &metav1.LabelSelector{}
	}
	if out.MatchPolicy == nil {
		out.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	return &out
}
