package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// DefaultUser is the user of requests without another one.
const DefaultUser = "developer"

// authenticated is the group that the API server adds to every user.
const authenticated = "system:authenticated"

// RequestOptions describe a request for an object.
type RequestOptions struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT. Empty means UPDATE with both
	// objects, DELETE with only an old one, and CREATE otherwise.
	Operation   admissionv1.Operation
	Subresource string
	// Resource is that of a subresource whose objects have another kind, as
	// "deployments.apps"; it is needed only if several resources have the subresource.
	Resource string
	User     authenticationv1.UserInfo
	DryRun   bool
}

// NewRequest returns the request that an API server sends for an object. Either of the
// objects can be nil.
func (a *APIs) NewRequest(object, old *load.Object, o RequestOptions) (*admissionv1.AdmissionRequest, error) {
	subject := object
	if subject == nil {
		subject = old
	}
	if subject == nil {
		return nil, errors.New("the request has neither an object nor an old object")
	}
	kind := subject.GroupVersionKind()
	if old != nil && old.GroupVersionKind() != kind {
		return nil, old.Errorf("kind", "the old object is a %s in %s, and the object a %s in %s", old.Kind, old.APIVersion,
			kind.Kind, kind.GroupVersion())
	}
	resource, err := a.target(kind, o)
	if err != nil {
		return nil, subject.Errorf("kind", "%v", err)
	}
	namespace := a.namespaceFor(subject, resource)
	r := newRequest(kind, resource, o)
	r.Name, r.Namespace = subject.Metadata.Name, namespace
	r.Operation = operation(object, old, o.Operation)
	r.Options = optionsOf(r.Operation, o.DryRun)
	if err := checkOperation(r.Operation, subject, object, old); err != nil {
		return nil, err
	}
	if r.Operation != admissionv1.Delete {
		if r.Object.Raw, err = complete(object, resource, namespace); err != nil {
			return nil, err
		}
	} else if old == nil {
		old = object
	}
	r.OldObject.Raw, err = complete(old, resource, namespace)
	return r, err
}

func newRequest(kind schema.GroupVersionKind, resource pluginapi.KindResource, o RequestOptions) *admissionv1.AdmissionRequest {
	gvk, gvr := metav1.GroupVersionKind(kind), metav1.GroupVersionResource(resource.GroupVersionResource)
	user := o.User
	if user.Username == "" {
		user.Username = DefaultUser
	}
	if !slices.Contains(user.Groups, authenticated) {
		user.Groups = append(slices.Clone(user.Groups), authenticated)
	}
	return &admissionv1.AdmissionRequest{
		UID: "00000000-0000-0000-0000-000000000000", Kind: gvk, RequestKind: &gvk, Resource: gvr, RequestResource: &gvr,
		SubResource: o.Subresource, RequestSubResource: o.Subresource, UserInfo: user, DryRun: &o.DryRun,
	}
}

func operation(object, old *load.Object, given admissionv1.Operation) admissionv1.Operation {
	switch {
	case given != "":
		return given
	case object == nil:
		return admissionv1.Delete
	case old != nil:
		return admissionv1.Update
	}
	return admissionv1.Create
}

// checkOperation rejects requests that no API server sends.
func checkOperation(op admissionv1.Operation, subject, object, old *load.Object) error {
	switch {
	case op == admissionv1.Update && (object == nil || old == nil):
		return subject.Errorf("", "an UPDATE has an object and an oldObject")
	case (op == admissionv1.Create || op == admissionv1.Connect) && object == nil:
		return subject.Errorf("", "a %s has an object", op)
	case op == admissionv1.Create && old != nil:
		return old.Errorf("", "a CREATE has no oldObject")
	case op == admissionv1.Delete && object != nil && old != nil:
		return object.Errorf("", "a DELETE has only an oldObject")
	case op == admissionv1.Update && object.Metadata.Name != old.Metadata.Name:
		return object.Errorf("metadata.name", "the old object has the name %q: the name of an object is immutable", old.Metadata.Name)
	}
	return nil
}

// target returns the resource of a request.
func (a *APIs) target(kind schema.GroupVersionKind, o RequestOptions) (pluginapi.KindResource, error) {
	if o.Subresource == "" {
		return a.resource(kind)
	}
	var found []pluginapi.KindResource
	var names, others []string
	for gv, list := range a.Lists() {
		for _, r := range list {
			name, sub, _ := strings.Cut(r.Name, "/")
			if sub != o.Subresource || a.KindFor(gv.WithResource(name), sub) != kind {
				continue
			}
			resource := gv.WithResource(name)
			if o.Resource == "" || o.Resource == resource.GroupResource().String() {
				found = append(found, pluginapi.KindResource{GroupVersionResource: resource, Namespaced: r.Namespaced})
				names = append(names, resource.GroupResource().String())
			} else {
				others = append(others, resource.GroupResource().String())
			}
		}
	}
	slices.Sort(names)
	slices.Sort(others)
	switch {
	case len(found) == 0 && len(others) > 0:
		return pluginapi.KindResource{}, fmt.Errorf("the resource %q has no subresource %q with the kind %s: set resource to one of %s",
			o.Resource, o.Subresource, kind.Kind, strings.Join(slices.Compact(others), ", "))
	case len(found) == 0:
		return pluginapi.KindResource{}, fmt.Errorf("no resource has the subresource %q with the kind %s in %s",
			o.Subresource, kind.Kind, kind.GroupVersion())
	case len(slices.Compact(names)) > 1:
		return pluginapi.KindResource{}, fmt.Errorf("several resources have the subresource %q: set resource to one of %s",
			o.Subresource, strings.Join(slices.Compact(names), ", "))
	}
	return found[0], nil
}

// namespaceFor returns the namespace of a request. For a Namespace it is its name.
func (a *APIs) namespaceFor(o *load.Object, resource pluginapi.KindResource) string {
	switch {
	case resource.Group == "" && resource.Resource == "namespaces":
		return o.Metadata.Name
	case !resource.Namespaced:
		return ""
	case o.Metadata.Namespace == "":
		return cmp.Or(a.DefaultNamespace, metav1.NamespaceDefault)
	}
	return o.Metadata.Namespace
}

// complete returns the object with its namespace, which the API server sets.
func complete(o *load.Object, resource pluginapi.KindResource, namespace string) ([]byte, error) {
	switch {
	case o == nil:
		return nil, nil
	case !resource.Namespaced && o.Metadata.Namespace != "":
		return nil, o.Errorf("metadata.namespace", "%s are cluster-scoped: remove the namespace", resource.Resource)
	case !resource.Namespaced || o.Metadata.Namespace != "":
		return o.Raw, nil
	}
	var tree map[string]json.RawMessage
	if err := json.Unmarshal(o.Raw, &tree); err != nil {
		return nil, fmt.Errorf("reading %s: %w", o, err)
	}
	metadata := map[string]json.RawMessage{}
	if raw, ok := tree["metadata"]; ok {
		if err := json.Unmarshal(raw, &metadata); err != nil {
			return nil, fmt.Errorf("reading the metadata of %s: %w", o, err)
		}
	}
	if metadata == nil { // of "metadata: null"
		metadata = map[string]json.RawMessage{}
	}
	metadata["namespace"], _ = json.Marshal(namespace) // a string
	raw, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata of %s: %w", o, err)
	}
	tree["metadata"] = raw
	return json.Marshal(tree)
}

// optionsOf returns the options of a request, as the API server sends them.
func optionsOf(op admissionv1.Operation, dryRun bool) runtime.RawExtension {
	kinds := map[admissionv1.Operation]string{
		admissionv1.Create: "CreateOptions",
		admissionv1.Update: "UpdateOptions",
		admissionv1.Delete: "DeleteOptions",
	}
	kind, ok := kinds[op]
	if !ok {
		return runtime.RawExtension{}
	}
	text := fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":%q`, kind)
	if dryRun {
		text += `,"dryRun":["All"]`
	}
	return runtime.RawExtension{Raw: []byte(text + "}")}
}
