package webhooks

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/internal/jsontree"
)

const (
	reviewKind = "AdmissionReview"
	// maxShort bounds identifiers: those that Kubernetes bounds itself, to 253 bytes and less.
	maxShort = 253
	// maxLong bounds the names that Kubernetes does not bound.
	maxLong = 4096
)

// review is the envelope. Versions v1 and v1beta1 differ in nothing but apiVersion. Names are matched case by case,
// duplicates and broken UTF-8 are refused at every depth, and members that are not listed are left alone: a later API
// server may send more.
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request"`
}

type request struct {
	UID                types.UID                    `json:"uid"`
	Kind               metav1.GroupVersionKind      `json:"kind"`
	Resource           metav1.GroupVersionResource  `json:"resource"`
	SubResource        string                       `json:"subResource"`
	RequestKind        *metav1.GroupVersionKind     `json:"requestKind"`
	RequestResource    *metav1.GroupVersionResource `json:"requestResource"`
	RequestSubResource string                       `json:"requestSubResource"`
	Name               string                       `json:"name"`
	Namespace          string                       `json:"namespace"`
	Operation          admissionv1.Operation        `json:"operation"`
	UserInfo           authenticationv1.UserInfo    `json:"userInfo"`
	Object             span                         `json:"object"`
	OldObject          span                         `json:"oldObject"`
	DryRun             *bool                        `json:"dryRun"`
	Options            span                         `json:"options"`
}

// span is where in the body an object stands: it is checked, but neither decoded nor copied.
type span struct {
	start, end int64
	kind       jsontext.Kind
}

// UnmarshalJSONFrom notes the place of the next value.
func (s *span) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	end := d.InputOffset()
	*s = span{start: end - int64(len(value)), end: end, kind: value.Kind()}
	return nil
}

// raw returns the object as part of the body, and nothing for null.
func (s span) raw(body []byte) runtime.RawExtension {
	if s.kind != jsontext.KindBeginObject {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: body[s.start:s.end:s.end]}
}

// decodeReview returns the request in body, of which its objects are parts, and the version to answer in.
func decodeReview(body []byte) (*admissionv1.AdmissionRequest, string, error) {
	var r review
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, "", explain(err, body)
	}
	if err := r.check(); err != nil {
		return nil, "", err
	}
	in := r.Request
	return &admissionv1.AdmissionRequest{
		UID:                in.UID,
		Kind:               in.Kind,
		Resource:           in.Resource,
		SubResource:        in.SubResource,
		RequestKind:        in.RequestKind,
		RequestResource:    in.RequestResource,
		RequestSubResource: in.RequestSubResource,
		Name:               in.Name,
		Namespace:          in.Namespace,
		Operation:          in.Operation,
		UserInfo:           in.UserInfo,
		Object:             in.Object.raw(body),
		OldObject:          in.OldObject.raw(body),
		DryRun:             in.DryRun,
		Options:            in.Options.raw(body),
	}, r.APIVersion, nil
}

// explain says what is wrong with the body, and where, without repeating it.
func explain(err error, body []byte) error {
	var mismatch *json.SemanticError
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return errors.New("invalid JSON: the body is empty")
	case errors.As(err, &mismatch):
		reason := "unexpected " + jsontree.KindName(mismatch.JSONKind)
		return &jsontree.Error{Pointer: string(mismatch.JSONPointer), Offset: mismatch.ByteOffset, Reason: reason}
	}
	return jsontree.Locate(err)
}

func (r *review) check() error {
	switch {
	case r.Kind != reviewKind:
		return fmt.Errorf("kind must be %s", reviewKind)
	case r.APIVersion != admissionv1.SchemeGroupVersion.String() && r.APIVersion != admissionv1beta1.SchemeGroupVersion.String():
		return errors.New("apiVersion must be admission.k8s.io/v1 or admission.k8s.io/v1beta1")
	case r.Request == nil:
		return errors.New("request is missing")
	}
	return r.Request.check()
}

func (r *request) check() error {
	for _, field := range []struct {
		name, value string
		required    bool
		limit       int
	}{
		{"uid", string(r.UID), true, maxShort},
		{"kind.group", r.Kind.Group, false, maxShort},
		{"kind.version", r.Kind.Version, true, maxShort},
		{"kind.kind", r.Kind.Kind, true, maxShort},
		{"resource.group", r.Resource.Group, false, maxShort},
		{"resource.version", r.Resource.Version, true, maxShort},
		{"resource.resource", r.Resource.Resource, true, maxShort},
		{"subResource", r.SubResource, false, maxShort},
		{"requestSubResource", r.RequestSubResource, false, maxShort},
		{"namespace", r.Namespace, false, maxShort},
		{"name", r.Name, false, maxLong},
		{"userInfo.username", r.UserInfo.Username, false, maxLong},
	} {
		if field.required && field.value == "" {
			return fmt.Errorf("request.%s is missing", field.name)
		}
		if len(field.value) > field.limit {
			return fmt.Errorf("request.%s has %d bytes, more than %d", field.name, len(field.value), field.limit)
		}
	}
	switch r.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
	default:
		return errors.New("request.operation must be CREATE, UPDATE, DELETE or CONNECT")
	}
	return r.checkObjects()
}

func (r *request) checkObjects() error {
	for _, field := range []struct {
		name string
		span
	}{{"object", r.Object}, {"oldObject", r.OldObject}, {"options", r.Options}} {
		switch field.kind {
		case jsontext.KindBeginObject, jsontext.KindNull, jsontext.KindInvalid: // invalid: not in the body
		default:
			return fmt.Errorf("request.%s must be a JSON object; found: %s", field.name, jsontree.KindName(field.kind))
		}
	}
	return nil
}

// encodeReview returns the answer to the request with this UID, in the version it was asked in.
func encodeReview(apiVersion string, uid types.UID, response *admissionv1.AdmissionResponse) ([]byte, error) {
	answer := *response // the evaluator may give the same response to many requests
	answer.UID = uid
	return stdjson.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: reviewKind, APIVersion: apiVersion},
		Response: &answer,
	})
}
