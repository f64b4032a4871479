package replay

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// event is the part of an audit event that an admission request needs.
type event struct {
	Kind             string                     `json:"kind"`
	Items            []jsontext.Value           `json:"items"` // of an EventList
	Level            string                     `json:"level"`
	AuditID          string                     `json:"auditID"`
	Stage            string                     `json:"stage"`
	RequestURI       string                     `json:"requestURI"`
	Verb             string                     `json:"verb"`
	User             authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser *authenticationv1.UserInfo `json:"impersonatedUser"`
	ObjectRef        *reference                 `json:"objectRef"`
	ResponseStatus   struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject  jsontext.Value    `json:"requestObject"`
	ResponseObject jsontext.Value    `json:"responseObject"`
	Received       string            `json:"requestReceivedTimestamp"`
	Annotations    map[string]string `json:"annotations"`
}

type reference struct {
	Resource    string `json:"resource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"`
	Subresource string `json:"subresource"`
}

func (r *reference) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.APIGroup, Version: r.APIVersion, Resource: r.Resource}
}

// Reasons for which an event is not replayed.
const (
	skippedRead       = ""                                                                  // admission does not see it
	skippedRefused    = "refused by authorization"                                          // before admission
	skippedLevel      = "without objects: record them with the audit level RequestResponse" // level Metadata
	skippedPatch      = "patches without their result: record them with the audit level RequestResponse"
	skippedDeletion   = "deletions of which the log does not have the object"
	skippedCollection = "deletions of collections, which have a request for each object"
	skippedKind       = "of unknown kinds: add their CustomResourceDefinitions with -f"
)

// operationOf returns the operation of an event, or the reason why it is not replayed.
func operationOf(e *event) (op admissionv1.Operation, skipped string, ok bool) {
	if e.Stage != "ResponseComplete" || e.ObjectRef == nil {
		return "", skippedRead, false
	}
	if connects(e.ObjectRef) {
		if refused(e) {
			return "", skippedRefused, false
		}
		return admissionv1.Connect, "", true
	}
	switch e.Verb {
	case "create":
		op = admissionv1.Create
	case "update", "patch":
		op = admissionv1.Update
	case "delete":
		op = admissionv1.Delete
	case "deletecollection":
		return "", skippedCollection, false
	default:
		return "", skippedRead, false
	}
	if refused(e) {
		return "", skippedRefused, false
	}
	return op, "", true
}

// connects reports whether requests for a subresource are connections.
func connects(r *reference) bool {
	switch r.Resource + "/" + r.Subresource {
	case "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy":
		return true
	}
	return false
}

func refused(e *event) bool {
	return e.Annotations["authorization.k8s.io/decision"] == "forbid" || e.ResponseStatus.Code == 401
}

// requestOf returns the admission request of an event, or the reason why there is none.
func requestOf(e *event, kinds runtime.EquivalentResourceMapper) (*admissionv1.AdmissionRequest, string) {
	op, skipped, ok := operationOf(e)
	if !ok {
		return nil, skipped
	}
	resource := e.ObjectRef.resource()
	kind := kinds.KindFor(resource, e.ObjectRef.Subresource)
	if kind.Empty() {
		return nil, skippedKind
	}
	r := newRequest(e, op, kind, resource)
	switch op {
	case admissionv1.Connect:
		return r, ""
	case admissionv1.Delete:
		if r.OldObject.Raw = objectOf(e.ResponseObject, kind); r.OldObject.Raw == nil {
			return nil, withoutObject(e, skippedDeletion)
		}
		return r, ""
	}
	if r.Object.Raw = objectIn(e, kind); r.Object.Raw == nil {
		return nil, withoutObject(e, skippedPatch)
	}
	return r, ""
}

// withoutObject returns the reason why there is no object.
func withoutObject(e *event, why string) string {
	if e.Level == "Metadata" {
		return skippedLevel
	}
	return why
}

// objectIn returns the object that validating webhooks get: the result of the request if it
// is known, and otherwise what the client sent.
func objectIn(e *event, kind schema.GroupVersionKind) []byte {
	if e.ResponseStatus.Code < 300 {
		if object := objectOf(e.ResponseObject, kind); object != nil {
			return object
		}
	}
	if e.Verb == "patch" && !isApply(e) {
		return nil
	}
	return objectOf(e.RequestObject, kind)
}

// isApply reports whether a patch is the whole object, as a new one has when it is applied.
// Of others the rest of the object is not known.
func isApply(e *event) bool {
	return e.ResponseStatus.Code == 201
}

// objectOf returns the object if it is of a kind; nil otherwise, for example for a Status.
func objectOf(raw jsontext.Value, kind schema.GroupVersionKind) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var found struct{ apiVersion, kind string }
	eachMember(raw, func(name string, value jsontext.Value) bool {
		switch name {
		case "apiVersion":
			found.apiVersion = unquote(value)
		case "kind":
			found.kind = unquote(value)
		}
		return found.apiVersion == "" || found.kind == ""
	})
	if found.kind != kind.Kind || found.apiVersion != kind.GroupVersion().String() {
		return nil
	}
	return raw
}

func newRequest(e *event, op admissionv1.Operation, kind schema.GroupVersionKind, resource schema.GroupVersionResource) *admissionv1.AdmissionRequest {
	gvk, gvr := metav1.GroupVersionKind(kind), metav1.GroupVersionResource(resource)
	user := e.User
	if e.ImpersonatedUser != nil {
		user = *e.ImpersonatedUser
	}
	dryRun := strings.Contains(e.RequestURI, "dryRun=All")
	r := &admissionv1.AdmissionRequest{
		UID: types.UID(e.AuditID), Kind: gvk, RequestKind: &gvk, Resource: gvr, RequestResource: &gvr,
		SubResource: e.ObjectRef.Subresource, RequestSubResource: e.ObjectRef.Subresource,
		Name: e.ObjectRef.Name, Namespace: e.ObjectRef.Namespace, Operation: op, UserInfo: user, DryRun: &dryRun,
	}
	if resource.Group == "" && resource.Resource == "namespaces" && r.Namespace == "" {
		r.Namespace = r.Name
	}
	return r
}

// decodeEvent decodes an event. Each name of an API server's log is there once.
func decodeEvent(text []byte) (*event, error) {
	e := &event{}
	if err := json.Unmarshal(text, e, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	return e, nil
}

// eachMember calls visit for the members of a JSON object until it returns false.
func eachMember(raw jsontext.Value, visit func(name string, value jsontext.Value) bool) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if token, err := d.ReadToken(); err != nil || token.Kind() != '{' {
		return
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil || !visit(name, value) {
			return
		}
	}
}

// unquote returns the text of a JSON string; "" for other values.
func unquote(value jsontext.Value) string {
	if value.Kind() != '"' {
		return ""
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(text)
}
