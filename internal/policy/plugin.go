package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/objectpatch"
)

var errNoObject = errors.New("the request has no object")

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

// InheritState gives the plugin of the policy the state of an earlier generation. It is
// called before any other method.
func (c *Compiled) InheritState(before *Compiled) {
	if keeper, ok := c.plugin.(StatefulPlugin); ok && before.plugin != nil {
		c.plugin = keeper.InheritState(before.plugin)
	}
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
	Listed Params
	// Authorizer decides about permissions of users.
	Authorizer authorizer.UnconditionalAuthorizer
	// Kinds finds the resources of a kind; an error means that there is none.
	Kinds Kinds
	// Images finds the backends that decide about images.
	Images Images
	// Pods lists Pods; it can be nil.
	Pods Pods
	Now  func() time.Time

	typed       map[typedKey]any
	warnings    []string
	annotations []validating.PolicyAuditAnnotation
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

type typedKey struct {
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
func (c *Call) Warn(text string) { c.warnings = append(c.warnings, text) }

// Annotate adds a value for the audit log.
func (c *Call) Annotate(key, value string) {
	c.annotations = append(c.annotations, validating.PolicyAuditAnnotation{Key: key, Value: value, Action: validating.AuditAnnotationActionPublish})
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
		return nil, errNoParams
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
	key := typedKey{object: object, kind: reflect.TypeFor[T]()}
	if found, ok := c.typed[key].(*T); ok {
		return found, nil
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out); err != nil {
		return nil, fmt.Errorf("reading %s: %w", object.GetKind(), err)
	}
	if c.typed == nil {
		c.typed = map[typedKey]any{}
	}
	c.typed[key] = out
	return out, nil
}

// call returns the Call of a request.
func (c *Compiled) call(on *subject, host Environment) *Call {
	if on.typed == nil {
		on.typed = map[typedKey]any{}
	}
	attributes, resource := current{on.versioned}, schema.GroupVersionResource(on.raw.Resource)
	if on.selected != nil {
		pod := *on.versioned
		pod.Attributes = on.selected
		attributes, resource = current{&pod}, on.selected.GetResource()
	}
	return &Call{
		Attributes: attributes, Resource: resource,
		Namespaces: host.Namespaces, Listed: host.Listed, Authorizer: on.authorizer, Kinds: host.Kinds, Images: host.Images, Pods: host.Pods, Now: host.Now,
		typed: on.typed,
	}
}

// current holds attributes with the current objects, in the version of the request.
type current struct{ *admission.VersionedAttributes }

// GetObject implements admission.Attributes.
func (a current) GetObject() runtime.Object { return a.VersionedObject.Object() }

// GetOldObject implements admission.Attributes.
func (a current) GetOldObject() runtime.Object { return a.VersionedOldObject.Object() }

// pluginResult is the result of a policy in the validating phase.
type pluginResult struct {
	validating.ValidateResult
	codes       []int32 // of the decisions; without an entry, that of the reason
	warnings    []string
	validations []validationResult // of the decisions; nil without names and ratchets
}

// evaluatePlugin validates a request with the plugin, if it satisfies the
// matchConditions.
func (c *Compiled) evaluatePlugin(ctx context.Context, on *subject, host Environment) pluginResult {
	if err := c.mutator.err; err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if m := c.mutator.matcher; m != nil {
		matched := m.Match(ctx, on.versioned, nil, on.authorizer)
		if err := errors.Join(matched.Error, on.authorizer.failed()); err != nil {
			return pluginResult{ValidateResult: c.failure(err)}
		}
		if !matched.Matches {
			return pluginResult{}
		}
	}
	v, ok := c.plugin.(Validator)
	if !ok {
		return pluginResult{}
	}
	call := c.call(on, host)
	err := v.Validate(ctx, call)
	if unanswered := on.authorizer.failed(); unanswered != nil {
		err = unanswered
	}
	refusals, other := refusalsOf(err)
	if other != nil {
		return pluginResult{ValidateResult: c.failure(other)}
	}
	out := pluginResult{warnings: call.warnings}
	out.AuditAnnotations = call.annotations
	for _, s := range refusals {
		out.Decisions = append(out.Decisions, validating.PolicyDecision{
			Action: validating.ActionDeny, Evaluation: validating.EvalDeny, Message: s.Message, Reason: s.Reason,
		})
		out.codes = append(out.codes, s.Code)
	}
	if len(refusals) == 0 {
		out.Decisions = []validating.PolicyDecision{{Action: validating.ActionAdmit, Evaluation: validating.EvalAdmit}}
	}
	return out
}

// refusalsOf returns the denials in an error of a plugin, or the first other error.
func refusalsOf(err error) (refusals []metav1.Status, other error) {
	if err == nil {
		return nil, nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			more, other := refusalsOf(e)
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

// admit changes the object with the plugin. A denial takes effect only if the binding
// denies. Otherwise the validating phase reports it.
func (s *step) admit(ctx context.Context, host Environment) (Decision, error) {
	m, ok := s.policy.plugin.(Mutator)
	if !ok {
		return DecisionAllow, nil
	}
	before := s.on.versioned.VersionedObject.Object()
	after, err := m.Admit(ctx, s.policy.call(s.on, host))
	if unanswered := s.on.authorizer.failed(); unanswered != nil {
		err = unanswered
	}
	refusals, err := refusalsOf(err)
	switch {
	case err != nil:
		return DecisionError, err
	case len(refusals) > 0 && s.denies():
		s.refusals = refusals
		return DecisionDeny, nil
	case len(refusals) > 0 || objectpatch.Equal(before, after):
		return DecisionAllow, nil
	}
	if err := s.on.checkTemplate(before, after); err != nil {
		return DecisionError, s.on.atTemplate(err)
	}
	s.on.versioned.UpdateObject(after)
	if s.result != nil {
		s.again = append(s.again, 0)
	}
	return DecisionMutate, nil
}
