// Package nativeengine evaluates native policies with the engine of the API server, so that
// the decisions of sources do not depend on Ostiary.
package nativeengine

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/warning"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
)

// Cluster has what native policies read besides a request.
type Cluster struct {
	apis       *offline.APIs
	namespaces namespaces
	matcher    *matching.Matcher
	objects    []load.Object
}

// New returns a cluster with the namespaces of a world, and with objects as params.
func New(apis *offline.APIs, world *offline.World, objects []load.Object) *Cluster {
	n := namespaces{world}
	return &Cluster{apis: apis, namespaces: n, matcher: matching.NewMatcher(n, nil), objects: objects}
}

// namespaces implements corelisters.NamespaceLister: each one exists.
type namespaces struct{ world *offline.World }

// Get implements corelisters.NamespaceLister.
func (n namespaces) Get(name string) (*corev1.Namespace, error) {
	return n.world.GetNamespace(context.Background(), name)
}

// List implements corelisters.NamespaceLister.
func (namespaces) List(labels.Selector) ([]*corev1.Namespace, error) {
	return nil, errors.New("the namespaces have no list")
}

// Engine is a policy that is ready to evaluate.
type Engine struct {
	cluster    *Cluster
	original   *conversion.Original
	validating []validating.PolicyHook
	mutating   []mutating.PolicyHook
}

// Compile compiles a policy. The error has every expression that API servers reject.
func (c *Cluster) Compile(o *conversion.Original) (*Engine, error) {
	e := &Engine{cluster: c, original: o}
	compile := e.compileValidating
	if o.Mutating != nil {
		compile = e.compileMutating
	}
	err := compile()
	return e, err
}

func (e *Engine) compileValidating() error {
	p := e.original.Validating.DeepCopy()
	p.Spec.MatchConstraints = withDefaults(p.Spec.MatchConstraints)
	evaluator, err := compileValidating(p)
	if err != nil {
		return err
	}
	hook := validating.PolicyHook{Policy: p, Evaluator: evaluator}
	if hook.ParamInformer, hook.ParamScope, err = e.cluster.params(p.Spec.ParamKind, e.original.Param); err != nil {
		return err
	}
	for _, b := range e.original.ValidatingBindings {
		b = b.DeepCopy()
		b.Spec.MatchResources = withDefaults(b.Spec.MatchResources)
		hook.Bindings = append(hook.Bindings, b)
	}
	e.validating = []validating.PolicyHook{hook}
	return nil
}

func (e *Engine) compileMutating() error {
	p := e.original.Mutating.DeepCopy()
	p.Spec.MatchConstraints = withDefaults(p.Spec.MatchConstraints)
	evaluator, err := compileMutating(p)
	if err != nil {
		return err
	}
	hook := mutating.PolicyHook{Policy: p, Evaluator: evaluator}
	if hook.ParamInformer, hook.ParamScope, err = e.cluster.params(p.Spec.ParamKind, e.original.Param); err != nil {
		return err
	}
	for _, b := range e.original.MutatingBindings {
		b = b.DeepCopy()
		b.Spec.MatchResources = withDefaults(b.Spec.MatchResources)
		hook.Bindings = append(hook.Bindings, b)
	}
	e.mutating = []mutating.PolicyHook{hook}
	return nil
}

// withDefaults adds the defaults of API servers.
func withDefaults(m *admissionregistrationv1.MatchResources) *admissionregistrationv1.MatchResources {
	if m == nil {
		return nil
	}
	out := *m
	if out.NamespaceSelector == nil {
		out.NamespaceSelector = everything()
	}
	if out.ObjectSelector == nil {
		out.ObjectSelector = everything()
	}
	if out.MatchPolicy == nil {
		out.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	return &out
}

// Evaluate returns the result of a request, and whether the policy matches it. It is that
// of the first call: an API server calls a mutating policy again if others change the object.
func (e *Engine) Evaluate(ctx context.Context, r *admissionv1.AdmissionRequest) (*offline.Result, bool, error) {
	a, err := newAttributes(r)
	if err != nil {
		return nil, false, err
	}
	result := &offline.Result{Allowed: true, Object: r.Object.Raw}
	matches, err := e.matches(a, r)
	if !matches || err != nil {
		return result, matches, err
	}
	said := &warnings{}
	err = e.dispatch(warning.WithWarningRecorder(ctx, said), a)
	result.Warnings, result.AuditAnnotations = said.texts, a.annotations
	if err == nil {
		result.Object, err = a.encode()
		return result, true, err
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return nil, true, fmt.Errorf("evaluating the source: %w", err)
	}
	result.Allowed, result.Status, result.Object = false, &status.ErrStatus, nil
	return result, true, nil
}

// dispatch evaluates the policy. The library for JSON patches panics for some of them.
func (e *Engine) dispatch(ctx context.Context, a admission.Attributes) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = apierrors.NewInternalError(fmt.Errorf("panic: %v", value))
		}
	}()
	objects := e.cluster.apis.ObjectInterfaces()
	if e.mutating != nil {
		d := mutating.NewDispatcher(offline.Answers(nil), e.cluster.matcher, converters{e.cluster.apis})
		return d.Dispatch(ctx, a, objects, e.mutating)
	}
	d := validating.NewDispatcher(offline.Answers(nil), generic.NewPolicyMatcher(e.cluster.matcher))
	return d.Dispatch(ctx, a, objects, e.validating)
}

// converters implements patch.TypeConverterManager.
type converters struct{ *offline.APIs }

// Run implements patch.TypeConverterManager.
func (converters) Run(context.Context) {}

// matches reports whether the policy is evaluated for a request, apart from its bindings and
// match conditions. API servers call no mutating policies for DELETE.
func (e *Engine) matches(a *attributes, r *admissionv1.AdmissionRequest) (bool, error) {
	if e.mutating != nil && a.GetOperation() == admission.Delete {
		return false, nil
	}
	if e.original.Matches != nil {
		request, err := e.request(a, r)
		if err != nil || !e.original.Matches(request) {
			return false, err
		}
	}
	var accessor generic.PolicyAccessor
	if e.mutating != nil {
		accessor = mutating.NewMutatingAdmissionPolicyAccessor(e.mutating[0].Policy)
	} else {
		accessor = validating.NewValidatingAdmissionPolicyAccessor(e.validating[0].Policy)
	}
	matches, _, _, err := generic.NewPolicyMatcher(e.cluster.matcher).DefinitionMatches(a, e.cluster.apis.ObjectInterfaces(), accessor)
	return matches, err
}

func (e *Engine) request(a *attributes, r *admissionv1.AdmissionRequest) (conversion.OriginalRequest, error) {
	out := conversion.OriginalRequest{AdmissionRequest: r, Object: a.metadata()}
	if r.Namespace == "" || r.Kind.Group == "" && r.Kind.Kind == "Namespace" {
		return out, nil
	}
	var err error
	out.InNamespace, err = e.cluster.namespaces.Get(r.Namespace)
	return out, err
}
