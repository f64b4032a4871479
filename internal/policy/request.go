package policy

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// request is an admission request during its evaluation: decoded once, and only the parts
// that policies read.
type request struct {
	raw      *admissionv1.AdmissionRequest
	match    admission.Attributes // in the version of the request, without objects
	original admission.Attributes // in the version of the client, without objects

	whole      subject // its object
	authorizer *accessreview.RequestAuthorizer

	namespace      *corev1.Namespace
	namespaceErr   error
	namespaceKnown bool
	namespaceValue *uncounted.Namespace // nil before a batch reads it

	conditionsCost int64 // of the conditions of exceptions

	stored *StoredObject // nil for a request to an API server
	large  bool          // too large to be kept after the response
}

// maxRechecked is the maximum of memory of a request whose changes are checked after the
// response, when its memory no longer counts.
const maxRechecked = 1 << 20

// Memory of evaluations: the copies of an object that mutations make at a time, and the
// bytes of the largest Go value of an element, a container.
const (
	copies     = 2
	valueCost  = 1 << 10
	fewObjects = 1000 // that do not count
)

func newRequest(raw *admissionv1.AdmissionRequest) *request {
	attrs := func(kind metav1.GroupVersionKind, resource metav1.GroupVersionResource, subresource string) admission.Attributes {
		return newAttributes(raw, nil, nil, nil, kind, resource, subresource)
	}
	r := &request{raw: raw, match: attrs(raw.Kind, raw.Resource, raw.SubResource)}
	r.original = r.match
	if kind, resource, sub := requested(raw); resource != raw.Resource || sub != raw.SubResource || kind != raw.Kind {
		r.original = attrs(kind, resource, sub)
	}
	return r
}

// requested returns the kind and the resource of the client's request. They differ from
// those of the review if the API server converted the object.
func requested(raw *admissionv1.AdmissionRequest) (metav1.GroupVersionKind, metav1.GroupVersionResource, string) {
	kind, resource, sub := raw.Kind, raw.Resource, raw.SubResource
	if raw.RequestKind != nil {
		kind = *raw.RequestKind
	}
	if raw.RequestResource != nil {
		resource, sub = *raw.RequestResource, raw.RequestSubResource
	}
	return kind, resource, sub
}

func newAttributes(raw *admissionv1.AdmissionRequest, object, oldObject, options runtime.Object, kind metav1.GroupVersionKind, resource metav1.GroupVersionResource, subresource string) admission.Attributes {
	dryRun := raw.DryRun != nil && *raw.DryRun
	return admission.NewAttributesRecord(object, oldObject, schema.GroupVersionKind(kind), raw.Namespace, raw.Name,
		schema.GroupVersionResource(resource), subresource, admission.Operation(raw.Operation), options, dryRun, userInfo(raw.UserInfo))
}

func userInfo(u authenticationv1.UserInfo) user.Info {
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	if len(u.Extra) > 0 {
		info.Extra = make(map[string][]string, len(u.Extra))
		for k, v := range u.Extra {
			info.Extra[k] = v
		}
	}
	return info
}

// prepare decodes the parts that the policies read into the subject of the object. If a part
// cannot be decoded, the subject has no objects and is unreadable.
func (r *request) prepare(ctx context.Context, reads inputs, host Environment) error {
	r.whole = subject{request: r}
	account := unstructuredjson.AccountOf(ctx)
	decode := func(what string, raw runtime.RawExtension, parts unstructuredjson.Selection) (runtime.Object, error) {
		if parts.IsZero() || r.whole.unreadable != nil {
			return nil, nil //nolint:nilerr // unreadable leads to a decision
		}
		object, err := r.decode(account, what, raw, parts)
		host.pause(ctx)
		if errors.As(err, &r.whole.unreadable) {
			return nil, nil
		}
		return object, err
	}
	object, err := decode("object", r.raw.Object, reads.object)
	if err != nil {
		return err
	}
	copied := account.Spent()
	oldObject, err := decode("oldObject", r.raw.OldObject, reads.oldObject)
	if err != nil {
		return err
	}
	var parts unstructuredjson.Selection
	if reads.options {
		parts = unstructuredjson.Everything()
	}
	options, err := decode("options", r.raw.Options, parts)
	if err != nil {
		return err
	}
	if err := r.reserve(account, copied, reads); err != nil {
		return err
	}
	if r.whole.unreadable != nil {
		object, oldObject, options = nil, nil, nil
	}
	r.large = account.Spent() > maxRechecked
	kind, resource, sub := requested(r.raw)
	r.whole.versioned = &admission.VersionedAttributes{
		Attributes:         newAttributes(r.raw, object, oldObject, options, kind, resource, sub),
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(oldObject),
		VersionedKind:      schema.GroupVersionKind(r.raw.Kind),
	}
	return nil
}

// reserve takes memory for the copies of mutations and the Go values of plugins.
func (r *request) reserve(account *unstructuredjson.Account, copied int64, reads inputs) error {
	var more int64
	if reads.copies {
		more += copies * copied
	}
	if reads.values && account.Objects() > fewObjects {
		more += account.Objects() * valueCost
	}
	err := account.Take(more)
	var busy *unstructuredjson.BusyError
	switch {
	case errors.As(err, &busy):
		return err
	case err != nil && r.whole.unreadable == nil:
		r.whole.unreadable = &UnreadableError{What: "request.object", Err: err}
	}
	return nil
}

// decode returns nil, not a typed nil, for a missing part, because `object != null` in
// CEL depends on it. The error is an *UnreadableError; a *MalformedError for reviews that
// no API server sends; or an *unstructuredjson.BusyError.
func (r *request) decode(account *unstructuredjson.Account, what string, raw runtime.RawExtension, parts unstructuredjson.Selection) (runtime.Object, error) {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	var err error
	if r.stored != nil && what != "options" {
		object, err = r.stored.decode(account, raw.Raw, parts)
	} else {
		object.Object, err = account.DecodeParts(raw.Raw, parts)
	}
	var busy *unstructuredjson.BusyError
	switch {
	case errors.As(err, &busy):
		return nil, err
	case err != nil:
		return nil, &UnreadableError{What: "request." + what, Err: err}
	}
	if what != "options" {
		if err := r.contradiction(what, object.Object); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// contradiction returns an error if an object contradicts the request. API servers
// convert objects to the kind of the request, set their namespace before admission, and
// reject an update with another name. On CREATE a mutating webhook can have changed the
// name.
func (r *request) contradiction(what string, tree map[string]any) error {
	metadata, _ := tree["metadata"].(map[string]any) // nil if there is none
	kind := schema.GroupVersionKind(r.raw.Kind)
	apiVersion, kindName := kind.ToAPIVersionAndKind()
	name := r.raw.Name
	if r.raw.Operation != admissionv1.Update && r.raw.Operation != admissionv1.Delete {
		name = ""
	}
	for _, field := range []struct {
		tree              map[string]any
		path, name, wants string
		of                string
	}{
		{tree, "apiVersion", "apiVersion", apiVersion, "kind"},
		{tree, "kind", "kind", kindName, "kind"},
		{metadata, "metadata.namespace", "namespace", r.raw.Namespace, "namespace"},
		{metadata, "metadata.name", "name", name, "name"},
	} {
		value, present := field.tree[field.name]
		if !present || value == nil || value == "" || value == field.wants || (field.name == "name" && field.wants == "") {
			continue
		}
		return &MalformedError{What: "request." + what, Err: fmt.Errorf("%s contradicts request.%s", field.path, field.of)}
	}
	return nil
}

// namespaceObject gets the namespace once, for the first policy that reads it. A panic is
// an error of that policy, and later ones get an error too.
func (r *request) namespaceObject(ctx context.Context, namespaces pluginapi.Namespaces) (*corev1.Namespace, error) {
	if !r.namespaceKnown {
		r.namespaceKnown, r.namespaceErr = true, errors.New("internal error: the lookup of the namespace panicked")
		r.namespace, r.namespaceErr = r.lookUpNamespace(ctx, namespaces)
	}
	return r.namespace, r.namespaceErr
}

// lookUpNamespace returns no namespace for cluster-scoped requests and for Namespaces, as
// the API server does.
func (r *request) lookUpNamespace(ctx context.Context, namespaces pluginapi.Namespaces) (*corev1.Namespace, error) {
	kind := r.raw.Kind
	if r.raw.Namespace == "" || (kind.Kind == "Namespace" && kind.Version == "v1" && kind.Group == "") {
		return nil, nil
	}
	ns, err := namespaces.GetNamespace(ctx, r.raw.Namespace)
	if err != nil {
		return nil, fmt.Errorf("getting namespace %q: %w", r.raw.Namespace, err)
	}
	return ns, nil
}

// MalformedError is the error for a review that no API server sends.
type MalformedError struct {
	What string // the part of the review, as "request.object"
	Err  error
}

// Error implements error.
func (e *MalformedError) Error() string { return fmt.Sprintf("decoding %s: %v", e.What, e.Err) }

// Unwrap implements errors.Unwrap.
func (e *MalformedError) Unwrap() error { return e.Err }

// BadRequest marks errors that the caller causes.
func (e *MalformedError) BadRequest() bool { return true }
