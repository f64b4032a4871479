// Package pluginapi is what plugins implement, and what they get of a request.
package pluginapi

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

var (
	errNoObject = errors.New("the request has no object")
	errNoLister = errors.New("params are not available here")
)

// Plugin decides requests in Go, for a policy that names it. It implements Mutator,
// Validator or both. Its methods are called concurrently.
//
// An error that is a status of the API server with a code of 4xx, such as that of
// admission.NewForbidden, denies the request; several can be joined. Any other error
// means that there is no decision, and failurePolicy decides.
type Plugin interface {
	// Rules returns the requests that the plugin supports. They never change.
	Rules() []admissionregistrationv1.RuleWithOperations
}

// Mutator changes objects.
type Mutator interface {
	Plugin
	// Admit returns the new object: a changed copy, or the object of the call without a
	// change.
	Admit(ctx context.Context, call *Call) (*unstructured.Unstructured, error)
}

// Validator denies requests.
type Validator interface {
	Plugin
	Validate(ctx context.Context, call *Call) error
}

// StatefulPlugin is a plugin with state.
type StatefulPlugin interface {
	Plugin
	// InheritState returns the plugin with the state of the previous generation of the
	// policy, as far as it is valid. Neither argument is changed.
	InheritState(before Plugin) Plugin
}

// Call is one request, until the plugin returns. The plugin must not change any value of
// it.
type Call struct {
	// Attributes are those of the client's request. The objects are unstructured, in the
	// version of the rules, with the changes of earlier policies.
	admission.Attributes
	// Resource is the resource in that version.
	Resource schema.GroupVersionResource
	// Namespaces finds namespaces. Namespace is that of the request.
	Namespaces Namespaces
	// Listed finds the objects of the kinds that the plugin needs.
	Listed Lister
	// Authorizer decides about permissions of users.
	Authorizer authorizer.UnconditionalAuthorizer
	// Kinds finds the resources of a kind; an error means that there is none.
	Kinds Kinds
	// Images finds the backends that decide about images.
	Images Images
	// Pods lists Pods; it can be nil.
	Pods Pods
	Now  func() time.Time

	// Decoded has the Go values of objects, which the calls of a request share.
	Decoded Decoded

	// Warnings and Annotations are what the plugin has added.
	Warnings    []string
	Annotations []validating.PolicyAuditAnnotation
}

// Namespaces finds the namespace of a request, for the CEL variable namespaceObject. It
// returns an error if the namespace does not exist.
type Namespaces interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// Pods lists Pods of a namespace, and the number of those that it omits. It calls the API
// server, within the time of ctx.
type Pods interface {
	PodsIn(ctx context.Context, namespace string) (pods []*corev1.Pod, more int64, err error)
}

// Lister finds the objects of a kind that a paramRef names.
type Lister interface {
	Params(
		ctx context.Context,
		kind *admissionregistrationv1.ParamKind,
		ref *admissionregistrationv1.ParamRef,
		namespace string,
	) ([]runtime.Object, error)
}

// Kinds find the resources of a kind; an error means that there is none.
type Kinds interface {
	ResourcesOf(kind schema.GroupVersionKind) ([]KindResource, error)
}

// KindResource is a resource of a kind.
type KindResource struct {
	schema.GroupVersionResource
	Namespaced bool
}

// SecretKey is a field of a Secret in Ostiary's namespace.
type SecretKey struct{ Name, Key string }

// Images finds the backends that decide about images.
type Images interface {
	// Backend returns the backend whose kubeconfig is in a field of a Secret. An error
	// means that it is not known.
	Backend(at SecretKey) (ImageBackend, error)
}

// ImageBackend decides about images.
type ImageBackend interface {
	// Review sends one review. An error means that the backend did not answer.
	Review(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error)
}

// Decoded has Go values of objects. The zero value is ready for use.
type Decoded map[decodedKey]any

type decodedKey struct {
	object runtime.Object
	kind   reflect.Type
}

// Object returns the current object, nil if there is none.
func (c *Call) Object() *unstructured.Unstructured { return unstructuredOf(c.GetObject()) }

// OldObject returns the stored object, nil if there is none.
func (c *Call) OldObject() *unstructured.Unstructured { return unstructuredOf(c.GetOldObject()) }

// RequireObject returns the current object, or an error if there is none. No API server
// sends such a CREATE or UPDATE, but other callers can.
func (c *Call) RequireObject() (*unstructured.Unstructured, error) {
	if object := c.Object(); object != nil {
		return object, nil
	}
	return nil, errNoObject
}

func unstructuredOf(object runtime.Object) *unstructured.Unstructured {
	u, _ := object.(*unstructured.Unstructured) // nil without an object
	return u
}

// Warn adds a warning for the client, whatever the decision is.
func (c *Call) Warn(text string) { c.Warnings = append(c.Warnings, text) }

// Annotate adds a value for the audit log.
func (c *Call) Annotate(key, value string) {
	c.Annotations = append(c.Annotations, validating.PolicyAuditAnnotation{
		Key: key, Value: value, Action: validating.AuditAnnotationActionPublish,
	})
}

// Namespace returns the namespace of the request, or an error if it does not exist.
func (c *Call) Namespace(ctx context.Context) (*corev1.Namespace, error) {
	if c.Namespaces == nil {
		return nil, errors.New("namespaces are not available here")
	}
	ns, err := c.Namespaces.GetNamespace(ctx, c.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("getting namespace %q: %v", c.GetNamespace(), err) //nolint:errorlint // not found must not deny the request
	}
	return ns, nil
}

// List returns the objects of a kind that the plugin needs, optionally of one namespace.
// It fails until they are known.
func (c *Call) List(ctx context.Context, kind admissionregistrationv1.ParamKind, namespace string) ([]*unstructured.Unstructured, error) {
	if c.Listed == nil {
		return nil, errNoLister
	}
	found, err := c.Listed.Params(ctx, &kind, &admissionregistrationv1.ParamRef{
		Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction),
	}, namespace)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, object := range found {
		if u := unstructuredOf(object); u != nil {
			out = append(out, u)
		}
	}
	return out, nil
}

// Forbid returns the error with which the native plugins deny a request.
func (c *Call) Forbid(format string, args ...any) error {
	return admission.NewForbidden(c, fmt.Errorf(format, args...))
}

// Typed returns an object of the call as a Go value, which all plugins of a request
// share.
func Typed[T any](c *Call, object *unstructured.Unstructured) (*T, error) {
	if object == nil {
		return nil, errNoObject
	}
	key := decodedKey{object: object, kind: reflect.TypeFor[T]()}
	if found, ok := c.Decoded[key].(*T); ok {
		return found, nil
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out); err != nil {
		return nil, fmt.Errorf("reading %s: %w", object.GetKind(), err)
	}
	if c.Decoded == nil {
		c.Decoded = Decoded{}
	}
	c.Decoded[key] = out
	return out, nil
}

// Refusals returns the denials in an error of a plugin, or the first other error.
func Refusals(err error) (refusals []metav1.Status, other error) {
	if err == nil {
		return nil, nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			more, other := Refusals(e)
			if other != nil {
				return nil, other
			}
			refusals = append(refusals, more...)
		}
		return refusals, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code/100 != 4 {
		return nil, err
	}
	return []metav1.Status{status.Status()}, nil
}
