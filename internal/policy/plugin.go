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
)

var errNoObject = errors.New("the request has no object")

// Plugin decides requests in Go, where a policy names one instead of
// expressions. It implements Mutator, Validator or both. Its methods are called
// concurrently.
//
// An error that is a status of the API server with a code of 4xx, as those of
// admission.NewForbidden, refuses the request: several may be joined. Any other
// error means that there is no answer, and follows the policy's failurePolicy.
type Plugin interface {
	// Rules are the requests that the plugin is for. They never change.
	Rules() []admissionregistrationv1.RuleWithOperations
}

// Mutator changes objects.
type Mutator interface {
	Plugin
	// Admit returns the object as it is to be: a changed copy, or the object of
	// the call itself where nothing is to be changed.
	Admit(ctx context.Context, call *Call) (*unstructured.Unstructured, error)
}

// Validator refuses requests.
type Validator interface {
	Plugin
	Validate(ctx context.Context, call *Call) error
}

// StatefulPlugin is a plugin that remembers what it was asked.
type StatefulPlugin interface {
	Plugin
	// InheritState returns the plugin with what the one of the policy's generation before
	// remembers, as far as it is of use to it. Neither is changed.
	InheritState(before Plugin) Plugin
}

// InheritState has the plugin of a policy remember what that of an earlier
// generation does. It is called before anything else is asked of the policy.
func (c *Compiled) InheritState(before *Compiled) {
	if keeper, ok := c.plugin.(StatefulPlugin); ok && before.plugin != nil {
		c.plugin = keeper.InheritState(before.plugin)
	}
}

// Call is one request as a plugin sees it, until the plugin returns. Nothing
// that it gives may be changed.
type Call struct {
	// Attributes are the request as the client made it. Its objects are
	// unstructured, in the version that the rules ask for, and as the policies
	// before have left them.
	admission.Attributes
	// Resource is the resource in that version.
	Resource schema.GroupVersionResource
	// Namespaces finds namespaces. Namespace is that of the request.
	Namespaces Namespaces
	// Listed finds the objects of the kinds that the plugin needs.
	Listed Params
	// Authorizer says what users may do.
	Authorizer authorizer.UnconditionalAuthorizer
	// Kinds knows the resources of kinds.
	Kinds Kinds
	// Images knows the backends that decide about images.
	Images Images
	// Pods lists Pods; nil where nobody can.
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

// Object is the object as it is now, nil where there is none.
func (c *Call) Object() *unstructured.Unstructured { return unstructuredOf(c.GetObject()) }

// OldObject is the object as it is stored, nil where there is none.
func (c *Call) OldObject() *unstructured.Unstructured { return unstructuredOf(c.GetOldObject()) }

// RequireObject is Object, or an error where there is none. No API server sends
// such a creation or update, but any other caller may.
func (c *Call) RequireObject() (*unstructured.Unstructured, error) {
	if object := c.Object(); object != nil {
		return object, nil
	}
	return nil, errNoObject
}

func unstructuredOf(object runtime.Object) *unstructured.Unstructured {
	u, _ := object.(*unstructured.Unstructured) // nil will do
	return u
}

// Warn has the client warned, whatever comes of the request.
func (c *Call) Warn(text string) { c.warnings = append(c.warnings, text) }

// Annotate writes a value to the audit log.
func (c *Call) Annotate(key, value string) {
	c.annotations = append(c.annotations, validating.PolicyAuditAnnotation{Key: key, Value: value, Action: validating.AuditAnnotationActionPublish})
}

// Namespace is the namespace of the request. One that does not exist is an error.
func (c *Call) Namespace(ctx context.Context) (*corev1.Namespace, error) {
	if c.Namespaces == nil {
		return nil, errors.New("namespaces are not available here")
	}
	ns, err := c.Namespaces.GetNamespace(ctx, c.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("getting namespace %q: %v", c.GetNamespace(), err) //nolint:errorlint // not found is no refusal here
	}
	return ns, nil
}

// List gives all objects of a kind that the plugin needs, in a namespace if one
// is given. As long as they are not known, that is an error.
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

// Forbid is the status with which the API server's own plugins refuse a request.
func (c *Call) Forbid(format string, args ...any) error {
	return admission.NewForbidden(c, fmt.Errorf(format, args...))
}

// Typed is an object of the call as a Go value. Plugins of one request share it.
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

// call is a request as a plugin sees it.
func (c *Compiled) call(r *request, host Environment) *Call {
	if r.typed == nil {
		r.typed = map[typedKey]any{}
	}
	return &Call{
		Attributes: current{r.versioned}, Resource: schema.GroupVersionResource(r.raw.Resource),
		Namespaces: host.Namespaces, Listed: host.Listed, Authorizer: r.authorizer, Kinds: host.Kinds, Images: host.Images, Pods: host.Pods, Now: host.Now,
		typed: r.typed,
	}
}

// current are attributes with the objects in the version that was sent, as they are now.
type current struct{ *admission.VersionedAttributes }

// GetObject implements admission.Attributes.
func (a current) GetObject() runtime.Object { return a.VersionedObject.Object() }

// GetOldObject implements admission.Attributes.
func (a current) GetOldObject() runtime.Object { return a.VersionedOldObject.Object() }

// pluginResult is what came of a policy's evaluation in the validating phase.
type pluginResult struct {
	validating.ValidateResult
	codes    []int32 // of the decisions, where reasons do not say
	warnings []string
}

// evaluatePlugin has the plugin validate a request that satisfies the matchConditions.
func (c *Compiled) evaluatePlugin(ctx context.Context, r *request, host Environment) pluginResult {
	if err := c.mutator.err; err != nil {
		return pluginResult{ValidateResult: c.failure(err)}
	}
	if m := c.mutator.matcher; m != nil {
		matched := m.Match(ctx, r.versioned, nil, r.authorizer)
		if err := errors.Join(matched.Error, r.authorizer.failed()); err != nil {
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
	call := c.call(r, host)
	err := v.Validate(ctx, call)
	if unanswered := r.authorizer.failed(); unanswered != nil {
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

// refusalsOf are the refusals in a plugin's error, or the error if there is
// another among them.
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

// admit has the plugin change the object. A refusal holds at once only where
// the binding denies: elsewhere the validating phase tells of it.
func (s *step) admit(ctx context.Context, r *request, host Environment) (Decision, error) {
	m, ok := s.policy.plugin.(Mutator)
	if !ok {
		return DecisionAllow, nil
	}
	before := r.versioned.VersionedObject.Object()
	after, err := m.Admit(ctx, s.policy.call(r, host))
	if unanswered := r.authorizer.failed(); unanswered != nil {
		err = unanswered
	}
	refusals, err := refusalsOf(err)
	switch {
	case err != nil:
		return DecisionError, err
	case len(refusals) > 0 && s.binding.denies():
		s.refusals = refusals
		return DecisionDeny, nil
	case len(refusals) > 0 || same(before, after):
		return DecisionAllow, nil
	}
	r.versioned.UpdateObject(after)
	if s.result != nil {
		s.again = append(s.again, 0)
	}
	return DecisionMutate, nil
}
