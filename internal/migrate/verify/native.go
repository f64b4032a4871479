package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/informers"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/internal/offline"
)

// nativeCluster evaluates sources with the engine of the API server, so that their decisions
// do not depend on Ostiary.
type nativeCluster struct {
	apis       *offline.APIs
	namespaces everyNamespace
	objects    []load.Object // params are among them
}

// everyNamespace implements corelisters.NamespaceLister: each one exists.
type everyNamespace struct{ world *offline.World }

// Get implements corelisters.NamespaceLister.
func (n everyNamespace) Get(name string) (*corev1.Namespace, error) {
	return n.world.GetNamespace(context.Background(), name)
}

// List implements corelisters.NamespaceLister.
func (everyNamespace) List(labels.Selector) ([]*corev1.Namespace, error) {
	return nil, errors.New("the namespaces have no list")
}

// nativePolicy is a source that is ready to evaluate.
type nativePolicy struct {
	cluster  *nativeCluster
	original *conversion.Original
	engine   *nativeengine.Engine
}

// compile compiles a source. The error has every expression that API servers reject.
func (c *nativeCluster) compile(o *conversion.Original) (*nativePolicy, error) {
	stored, scope, err := c.params(o)
	if err != nil {
		return nil, err
	}
	cluster := &nativeengine.Cluster{
		Objects:    c.apis.ObjectInterfaces(),
		Matcher:    matching.NewMatcher(c.namespaces, nil),
		Authorizer: offline.Answers(nil),
		Converters: c.apis,
		Params: func(*admissionregistrationv1.ParamKind) (informers.GenericInformer, meta.RESTScope) {
			return stored, scope
		},
	}
	p := &nativePolicy{cluster: c, original: o}
	if o.Mutating != nil {
		p.engine, err = cluster.CompileMutating(nativeengine.Mutating{Policy: o.Mutating, Bindings: o.MutatingBindings})
	} else {
		p.engine, err = cluster.CompileValidating(
			nativeengine.Validating{Policy: o.Validating, Bindings: o.ValidatingBindings},
		)
	}
	return p, err
}

// params returns the params of a source: the only one that it has, or the objects of the
// kind. A kind that is not known has none, which the API server reports when it evaluates
// the policy.
func (c *nativeCluster) params(o *conversion.Original) (informers.GenericInformer, meta.RESTScope, error) {
	kind := paramKindOf(o)
	if kind == nil {
		return nil, nil, nil
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if o.Param != nil {
		stored, err := nativeengine.NewParams(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, o.Param)
		return stored, meta.RESTScopeRoot, err
	}
	found, err := c.apis.ResourcesOf(gvk)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // as above
	}
	scope := meta.RESTScopeRoot
	if found[0].Namespaced {
		scope = meta.RESTScopeNamespace
	}
	var objects []*unstructured.Unstructured
	for i := range c.objects {
		if c.objects[i].GroupVersionKind() != gvk {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(c.objects[i].Raw); err != nil {
			return nil, nil, fmt.Errorf("decoding %s: %w", &c.objects[i], err)
		}
		if found[0].Namespaced {
			u.SetNamespace(cmp.Or(u.GetNamespace(), metav1.NamespaceDefault))
		}
		objects = append(objects, u)
	}
	stored, err := nativeengine.NewParams(found[0].GroupResource(), objects...)
	return stored, scope, err
}

func paramKindOf(o *conversion.Original) *admissionregistrationv1.ParamKind {
	if o.Mutating != nil {
		return o.Mutating.Spec.ParamKind
	}
	return o.Validating.Spec.ParamKind
}

// evaluate returns the result of a request, and whether the source matches it.
func (p *nativePolicy) evaluate(ctx context.Context, r *admissionv1.AdmissionRequest) (*offline.Result, bool, error) {
	a, err := nativeengine.NewAttributes(r)
	if err != nil {
		return nil, false, err
	}
	result := &offline.Result{Allowed: true, Object: r.Object.Raw}
	if matches, err := p.matches(a, r); !matches || err != nil {
		return result, matches, err
	}
	outcome, err := p.engine.Evaluate(ctx, a)
	if err != nil {
		return nil, true, fmt.Errorf("evaluating the source: %w", err)
	}
	result.Warnings = outcome.Warnings
	result.AuditAnnotations = outcome.AuditAnnotations
	if outcome.Denial != nil {
		result.Allowed = false
		result.Status = outcome.Denial
		result.Object = nil
		return result, true, nil
	}
	result.Object, err = encodeObject(a.GetObject())
	return result, true, err
}

// encodeObject encodes an object after mutations; nil without one.
func encodeObject(object runtime.Object) ([]byte, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	return raw, nil
}

// matches reports whether the source is evaluated for a request, apart from its bindings and
// match conditions.
func (p *nativePolicy) matches(a admission.Attributes, r *admissionv1.AdmissionRequest) (bool, error) {
	if p.original.Mutating != nil && a.GetOperation() == admission.Delete {
		return false, nil
	}
	if p.original.Matches != nil {
		request, err := p.request(a, r)
		if err != nil || !p.original.Matches(request) {
			return false, err
		}
	}
	matches, _, _, err := p.engine.Matches(a)
	return matches, err
}

// request returns what the matching of the source itself reads.
func (p *nativePolicy) request(
	a admission.Attributes,
	r *admissionv1.AdmissionRequest,
) (conversion.OriginalRequest, error) {
	out := conversion.OriginalRequest{AdmissionRequest: r, Object: metadataOf(a)}
	if r.Namespace == "" || r.Kind.Group == "" && r.Kind.Kind == "Namespace" {
		return out, nil
	}
	var err error
	out.InNamespace, err = p.cluster.namespaces.Get(r.Namespace)
	return out, err
}

// metadataOf returns the metadata of the object, of a DELETE that of the old one.
func metadataOf(a admission.Attributes) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{}
	for _, object := range []runtime.Object{a.GetObject(), a.GetOldObject()} {
		if u, ok := object.(*unstructured.Unstructured); ok {
			out.Name = u.GetName()
			out.GenerateName = u.GetGenerateName()
			out.Namespace = u.GetNamespace()
			out.Labels = u.GetLabels()
			return out
		}
	}
	return out
}
