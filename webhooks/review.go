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

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	reviewKind = "AdmissionReview"
	// maxShort bounds identifiers that Kubernetes limits to 253 bytes or less.
	maxShort = 253
	// maxLong bounds names that Kubernetes does not limit.
	maxLong = 4096
)

// maxEnvelope bounds the size of a review without its objects. API servers accept headers of up to 1 MiB, which may
// hold the user's name and groups.
const maxEnvelope = 1 << 20

// envelopeCost is the memory that an envelope takes once decoded, for each of its bytes: group names of a few bytes are
// decoded, copied and converted for expressions.
const envelopeCost = 32

// review is the envelope. Versions v1 and v1beta1 differ only in apiVersion. Names are case-sensitive, duplicates and
// invalid UTF-8 are rejected, and unknown members are ignored: a later API server may send more.
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
	Object             span                         `json:"-"`
	OldObject          span                         `json:"-"`
	DryRun             *bool                        `json:"dryRun"`
	Options            span                         `json:"-"`
}

// span is the position of an object in the body. The object is neither checked, decoded nor copied.
type span struct {
	start, end int
	kind       jsontext.Kind
}

// raw returns the object as a slice of the body, and an empty RawExtension for null.
func (s span) raw(body []byte) runtime.RawExtension {
	if s.kind != jsontext.KindBeginObject {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: body[s.start:s.end:s.end]}
}

// decode returns the request in body, whose objects are slices of body, and the version for the answer. It charges the
// memory of the request, without its objects, to the account.
func (e *envelope) decode(body []byte, account *unstructuredjson.Account) (*admissionv1.AdmissionRequest, string, error) {
	switch {
	case errors.Is(e.err, errNoReview):
		return nil, "", explain(errNoReview, body)
	case e.err != nil:
		return nil, "", e.err
	}
	if err := account.Take(int64(len(e.text)) * envelopeCost); err != nil {
		return nil, "", err
	}
	var r review
	if err := json.Unmarshal(e.text, &r, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, "", explain(err, body)
	}
	if r.Request != nil {
		r.Request.Object, r.Request.OldObject, r.Request.Options = e.object, e.oldObject, e.options
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

// explain returns an error with the problem and its position in the body, without repeating the body. It decodes the
// body again, because offsets in the error must be those of the body.
func explain(cause error, body []byte) error {
	err := json.Unmarshal(body, new(review), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err == nil {
		err = cause
	}
	var mismatch *json.SemanticError
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return errors.New("invalid JSON: the body is empty")
	case errors.As(err, &mismatch):
		reason := "unexpected " + unstructuredjson.KindName(mismatch.JSONKind)
		return &unstructuredjson.Error{Pointer: string(mismatch.JSONPointer), Offset: mismatch.ByteOffset, Reason: reason}
	}
	return unstructuredjson.Locate(err)
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
	if err := r.checkObjects(); err != nil {
		return err
	}
	return r.checkSent()
}

func (r *request) checkObjects() error {
	for _, field := range []struct {
		name string
		span
	}{{"object", r.Object}, {"oldObject", r.OldObject}, {"options", r.Options}} {
		switch field.kind {
		case jsontext.KindBeginObject, jsontext.KindNull, jsontext.KindInvalid: // invalid: not in the body
		default:
			return fmt.Errorf("request.%s must be a JSON object; found: %s", field.name, unstructuredjson.KindName(field.kind))
		}
	}
	return nil
}

// checkSent rejects requests that no API server sends: see k8s.io/apiserver/pkg/endpoints/handlers. The content of the
// objects is checked where they are decoded.
func (r *request) checkSent() error {
	if err := r.checkPresence(); err != nil {
		return err
	}
	switch {
	case r.Name == "" && r.Operation == admissionv1.Update:
		return errors.New("request.name is missing: UPDATE needs it")
	case r.SubResource == "" && (r.Kind.Group != r.Resource.Group || r.Kind.Version != r.Resource.Version):
		return errors.New("request.kind contradicts request.resource: without a subresource, group and version are the same")
	case r.RequestResource != nil && r.RequestSubResource != r.SubResource:
		return errors.New("request.requestSubResource contradicts request.subResource")
	case r.Resource.Group == "" && r.Resource.Resource == "namespaces" && r.Name != "" && r.Namespace != "" && r.Name != r.Namespace:
		return errors.New("request.namespace contradicts request.name: that of a Namespace is its name")
	}
	return nil
}

// checkPresence rejects objects that the operation does not have, and missing ones that it has.
func (r *request) checkPresence() error {
	object, oldObject := r.Object.kind == jsontext.KindBeginObject, r.OldObject.kind == jsontext.KindBeginObject
	creates, updates, deletes := r.Operation == admissionv1.Create, r.Operation == admissionv1.Update, r.Operation == admissionv1.Delete
	switch {
	case !object && (creates || updates):
		return fmt.Errorf("request.object is missing: %s needs it", r.Operation)
	case object && deletes:
		return errors.New("request.object must not be set: DELETE has an oldObject only")
	case !oldObject && (updates || deletes):
		return fmt.Errorf("request.oldObject is missing: %s needs it", r.Operation)
	case oldObject && !updates && !deletes:
		return fmt.Errorf("request.oldObject must not be set: %s has none", r.Operation)
	}
	return nil
}

// encodeReview returns the answer to the request with this UID, in the version of the request.
func encodeReview(apiVersion string, uid types.UID, response *admissionv1.AdmissionResponse) ([]byte, error) {
	answer := *response // evaluators may return the same response for many requests
	answer.UID = uid
	return stdjson.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: reviewKind, APIVersion: apiVersion},
		Response: &answer,
	})
}
