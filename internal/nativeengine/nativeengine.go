// Package nativeengine runs ValidatingAdmissionPolicies and MutatingAdmissionPolicies with
// the engine of the API server, in this process. Conversions and tests compare Ostiary with
// it, so it shares no code with Ostiary's own evaluation.
package nativeengine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
)

// Cluster has what native policies find around a request.
type Cluster struct {
	// Objects are the kinds that the API server serves.
	Objects admission.ObjectInterfaces
	// Matcher has the namespaces.
	Matcher    *matching.Matcher
	Authorizer authorizer.UnconditionalAuthorizer
	// Converters have the schemas for apply configurations.
	Converters TypeConverters
	// Params returns the stored objects of a kind, and nil for a kind that is not known. It
	// is not called for policies without a paramKind.
	Params func(kind *admissionregistrationv1.ParamKind) (informers.GenericInformer, meta.RESTScope)
}

// TypeConverters returns the converters for the schemas of kinds.
type TypeConverters interface {
	GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter
}

// Validating is a policy with its bindings.
type Validating struct {
	Policy   *admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Mutating is a policy with its bindings.
type Mutating struct {
	Policy   *admissionregistrationv1.MutatingAdmissionPolicy
	Bindings []*admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Engine is compiled policies: validating or mutating ones.
type Engine struct {
	cluster    *Cluster
	matcher    generic.PolicyMatcher
	validating []validating.PolicyHook
	mutating   []mutating.PolicyHook
}

// CompileValidating compiles policies. The error has every expression that API servers
// reject. The engine is complete in spite of it: like that of an API server, it reports the
// error when it evaluates the policy.
func (c *Cluster) CompileValidating(policies ...Validating) (*Engine, error) {
	e := &Engine{cluster: c, matcher: generic.NewPolicyMatcher(c.Matcher)}
	var errs []error
	for _, given := range policies {
		p := given.Policy.DeepCopy()
		p.Spec.MatchConstraints = WithDefaults(p.Spec.MatchConstraints)
		evaluator, err := compileValidating(p)
		errs = append(errs, err)
		hook := validating.PolicyHook{Policy: p, Evaluator: evaluator, Bindings: defaultBindings(given.Bindings)}
		hook.ParamInformer, hook.ParamScope = c.params(p.Spec.ParamKind)
		e.validating = append(e.validating, hook)
	}
	return e, errors.Join(errs...)
}

// CompileMutating compiles policies like CompileValidating.
func (c *Cluster) CompileMutating(policies ...Mutating) (*Engine, error) {
	e := &Engine{cluster: c, matcher: generic.NewPolicyMatcher(c.Matcher)}
	var errs []error
	for _, given := range policies {
		p := given.Policy.DeepCopy()
		p.Spec.MatchConstraints = WithDefaults(p.Spec.MatchConstraints)
		evaluator, err := compileMutating(p)
		errs = append(errs, err)
		hook := mutating.PolicyHook{Policy: p, Evaluator: evaluator}
		hook.ParamInformer, hook.ParamScope = c.params(p.Spec.ParamKind)
		for _, b := range given.Bindings {
			b = b.DeepCopy()
			b.Spec.MatchResources = WithDefaults(b.Spec.MatchResources)
			hook.Bindings = append(hook.Bindings, b)
		}
		e.mutating = append(e.mutating, hook)
	}
	return e, errors.Join(errs...)
}

// WithBindings returns the engine with other bindings for each of its validating policies. It
// does not compile the policies again.
func (e *Engine) WithBindings(bindings ...[]*admissionregistrationv1.ValidatingAdmissionPolicyBinding) *Engine {
	out := *e
	out.validating = slices.Clone(e.validating)
	for i := range out.validating {
		out.validating[i].Bindings = defaultBindings(bindings[i])
	}
	return &out
}

func defaultBindings(
	in []*admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) []*admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	out := make([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding, len(in))
	for i, b := range in {
		out[i] = b.DeepCopy()
		out[i].Spec.MatchResources = WithDefaults(out[i].Spec.MatchResources)
	}
	return out
}

func (c *Cluster) params(kind *admissionregistrationv1.ParamKind) (informers.GenericInformer, meta.RESTScope) {
	if kind == nil {
		return nil, nil
	}
	return c.Params(kind)
}

// Matches reports whether one of the policies is evaluated for a request, apart from its
// bindings and match conditions, and the resource and kind in which its rules name that of
// the request. API servers call no mutating policies for DELETE.
func (e *Engine) Matches(a admission.Attributes) (bool, schema.GroupVersionResource, schema.GroupVersionKind, error) {
	for _, policy := range e.policies(a) {
		matches, resource, kind, err := e.matcher.DefinitionMatches(a, e.cluster.Objects, policy)
		if matches || err != nil {
			return matches, resource, kind, err
		}
	}
	return false, schema.GroupVersionResource{}, schema.GroupVersionKind{}, nil
}

// policies returns the policies that can apply to a request.
func (e *Engine) policies(a admission.Attributes) []generic.PolicyAccessor {
	var out []generic.PolicyAccessor
	for _, hook := range e.validating {
		out = append(out, validating.NewValidatingAdmissionPolicyAccessor(hook.Policy))
	}
	for _, hook := range e.mutating {
		if a.GetOperation() != admission.Delete {
			out = append(out, mutating.NewMutatingAdmissionPolicyAccessor(hook.Policy))
		}
	}
	return out
}

// Outcome is what a client and the audit log see of an evaluation.
type Outcome struct {
	// Denial is nil if the request is allowed.
	Denial           *metav1.Status
	Warnings         []string
	AuditAnnotations map[string]string
}

// Evaluate evaluates the policies for a request. Mutations change its object in place. The
// result is that of the first call: an API server calls a mutating policy again if others
// change the object. Every answer of the API server is a denial, also that a Namespace is
// missing; an error is not about the request.
func (e *Engine) Evaluate(ctx context.Context, a admission.Attributes) (*Outcome, error) {
	out := &Outcome{AuditAnnotations: map[string]string{}}
	if len(e.policies(a)) == 0 {
		return out, nil
	}
	err := e.dispatch(warning.WithWarningRecorder(ctx, recordedWarnings{out}), recordedAttributes{a, out})
	var denial *apierrors.StatusError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &denial):
		out.Denial = &denial.ErrStatus
		return out, nil
	}
	return nil, err
}

// dispatch evaluates the policies. It makes an error of a panic, as the API server does: the
// library for JSON patches panics for some of them.
func (e *Engine) dispatch(ctx context.Context, a admission.Attributes) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = apierrors.NewInternalError(fmt.Errorf("panic: %v", value))
		}
	}()
	if e.mutating != nil {
		d := mutating.NewDispatcher(e.cluster.Authorizer, e.cluster.Matcher, converterManager{e.cluster.Converters})
		return d.Dispatch(ctx, a, e.cluster.Objects, e.mutating)
	}
	d := validating.NewDispatcher(e.cluster.Authorizer, e.matcher)
	return d.Dispatch(ctx, a, e.cluster.Objects, e.validating)
}

// recordedAttributes keep the audit annotations of a request.
type recordedAttributes struct {
	admission.Attributes
	outcome *Outcome
}

// AddAnnotation implements admission.Attributes.
func (a recordedAttributes) AddAnnotation(key, value string) error {
	a.outcome.AuditAnnotations[key] = value
	return nil
}

// recordedWarnings implements warning.Recorder.
type recordedWarnings struct{ outcome *Outcome }

// AddWarning implements warning.Recorder.
func (w recordedWarnings) AddWarning(_, text string) {
	w.outcome.Warnings = append(w.outcome.Warnings, text)
}

// converterManager implements patch.TypeConverterManager.
type converterManager struct{ TypeConverters }

// Run implements patch.TypeConverterManager.
func (converterManager) Run(context.Context) {}
