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
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// request is an admission request while policies are evaluated on it: decoded
// once, and only as far as some policy reads it.
type request struct {
	raw      *admissionv1.AdmissionRequest
	match    admission.Attributes // in the version that was sent, without objects: for rules only
	original admission.Attributes // as the client named it, likewise

	versioned  *admission.VersionedAttributes
	authorizer *requestAuthorizer

	namespace      *corev1.Namespace
	namespaceErr   error
	namespaceKnown bool

	typed map[typedKey]any // what plugins have read

	typeConverter  managedfields.TypeConverter
	converterKnown bool

	unreadable *UnreadableError // nil: everything that is read could be decoded
	large      bool             // too large to be kept once it is answered
}

// maxRechecked is what a request may take for its changes to be checked after
// the answer, when its memory is not counted any more.
const maxRechecked = 1 << 20

// What evaluations take: how often mutations copy an object at a time, and the
// bytes of the largest Go value of an element, which is a container.
const (
	copies     = 2
	valueCost  = 1 << 10
	fewObjects = 1000 // that nobody counts
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

// requested is what the client asked for, which differs from what was sent
// where the API server converted the object to a version that a rule names.
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

// prepare decodes what the policies that match will read. What cannot be
// decoded leaves the request without objects, and unreadable.
func (r *request) prepare(ctx context.Context, reads inputs) error {
	account := unstructuredjson.AccountOf(ctx)
	decode := func(what string, raw runtime.RawExtension, wanted bool) (runtime.Object, error) {
		if !wanted || r.unreadable != nil {
			return nil, nil //nolint:nilerr // unreadable is an answer, not a failure
		}
		object, err := r.decode(account, what, raw, reads)
		if errors.As(err, &r.unreadable) {
			return nil, nil
		}
		return object, err
	}
	object, err := decode("object", r.raw.Object, true)
	if err != nil {
		return err
	}
	copied := account.Spent()
	oldObject, err := decode("oldObject", r.raw.OldObject, reads.oldObject)
	if err != nil {
		return err
	}
	options, err := decode("options", r.raw.Options, reads.options)
	if err != nil {
		return err
	}
	if err := r.reserve(account, copied, reads); err != nil {
		return err
	}
	if r.unreadable != nil {
		object, oldObject, options = nil, nil, nil
	}
	r.large = account.Spent() > maxRechecked
	kind, resource, sub := requested(r.raw)
	r.versioned = &admission.VersionedAttributes{
		Attributes:         newAttributes(r.raw, object, oldObject, options, kind, resource, sub),
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(oldObject),
		VersionedKind:      schema.GroupVersionKind(r.raw.Kind),
	}
	return nil
}

// reserve takes the memory that evaluating takes beyond what was decoded: for
// the copies that mutations make, and for the Go values that plugins make.
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
	case err != nil && r.unreadable == nil:
		r.unreadable = &UnreadableError{What: "request.object", Err: err}
	}
	return nil
}

// decode gives nil, not a typed nil, for what is absent: `object != null` in
// CEL depends on it. An error is an *UnreadableError; a *MalformedError for what
// no API server sends; or a *jsontree.BusyError.
func (r *request) decode(account *unstructuredjson.Account, what string, raw runtime.RawExtension, reads inputs) (runtime.Object, error) {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	without := "managedFields"
	if reads.managedFields {
		without = ""
	}
	tree, err := account.DecodeWithout(raw.Raw, "metadata", without)
	var busy *unstructuredjson.BusyError
	switch {
	case errors.As(err, &busy):
		return nil, err
	case err != nil:
		return nil, &UnreadableError{What: "request." + what, Err: err}
	}
	if what != "options" {
		if err := r.contradiction(what, tree); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// contradiction is that an object is not what the request says it is, which no
// API server sends: it converts objects to the kind of the request, gives them
// the namespace of the request before admission, and refuses an update of
// another name. On CREATE a mutating webhook may have changed the name.
func (r *request) contradiction(what string, tree map[string]any) error {
	metadata, _ := tree["metadata"].(map[string]any) // none will do
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

// namespaceObject looks the namespace up once, for the first policy that reads
// it. That is within a policy's evaluation, where a panic is that policy's
// error; those after it then get the error as well.
func (r *request) namespaceObject(ctx context.Context, namespaces Namespaces) (*corev1.Namespace, error) {
	if !r.namespaceKnown {
		r.namespaceKnown, r.namespaceErr = true, errors.New("internal error: the lookup of the namespace panicked")
		r.namespace, r.namespaceErr = r.lookUpNamespace(ctx, namespaces)
	}
	return r.namespace, r.namespaceErr
}

// lookUpNamespace follows the API server: cluster-scoped requests, those for
// Namespaces among them, have no namespaceObject.
func (r *request) lookUpNamespace(ctx context.Context, namespaces Namespaces) (*corev1.Namespace, error) {
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

// MalformedError says that a request could not be decoded.
type MalformedError struct {
	What string // the part of the review, as "request.object"
	Err  error
}

// Error implements error.
func (e *MalformedError) Error() string { return fmt.Sprintf("decoding %s: %v", e.What, e.Err) }

// Unwrap implements errors.Unwrap.
func (e *MalformedError) Unwrap() error { return e.Err }

// BadRequest tells the server that the caller is at fault.
func (e *MalformedError) BadRequest() bool { return true }

// class returns the class of what expressions can read of the request, and whether there
// is one.
func (r *request) class() (class, bool) {
	size := extent{elements: float64(max(len(r.raw.UserInfo.Groups), len(r.raw.UserInfo.Extra)))}
	texts := append([]string{r.raw.Name, r.raw.Namespace, r.raw.UserInfo.Username, r.raw.UserInfo.UID}, r.raw.UserInfo.Groups...)
	for key, values := range r.raw.UserInfo.Extra {
		size.elements = max(size.elements, float64(len(values)))
		texts = append(append(texts, key), values...)
	}
	for _, text := range texts {
		size.text = max(size.text, float64(len(text)))
	}
	for _, object := range []runtime.Object{r.versioned.VersionedObject.Object(), r.versioned.VersionedOldObject.Object()} {
		if u, ok := object.(*unstructured.Unstructured); ok {
			size = size.union(extentOf(u.Object))
		}
	}
	return classOf(size)
}

// extentOf returns the extent of a JSON value.
func extentOf(value any) extent {
	var size extent
	switch value := value.(type) {
	case string:
		size.text = float64(len(value))
	case []any:
		size.elements = float64(len(value))
		for _, v := range value {
			size = size.union(extentOf(v))
		}
	case map[string]any:
		size.elements = float64(len(value))
		for key, v := range value {
			size = size.union(extentOf(v))
			size.text = max(size.text, float64(len(key)))
		}
	}
	return size
}
