package rehearsal

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
)

// world has what evaluations read besides the request: every namespace is the one that the
// policy selects, the authorizer has one answer, every param exists and is empty, and lookups find nothing.
type world struct {
	namespace *corev1.Namespace
	answer    authorizer.Decision
	asked     int // of the authorizer
}

func (w *world) environment(c Cluster) policy.Environment {
	return policy.Environment{
		Namespaces: w, Params: w, Listed: w, Authorizer: w, Lookups: w,
		Matcher:        matching.NewMatcher(w, nil), // the client is for namespaces that are not found
		TypeConverters: c.TypeConverters,
		Objects:        c.Objects,
		Now:            func() time.Time { return time.Unix(1_000_000_000, 0) },
	}
}

// GetNamespace implements pluginapi.Namespaces.
func (w *world) GetNamespace(context.Context, string) (*corev1.Namespace, error) {
	return w.namespace, nil
}

// Get implements corelisters.NamespaceLister.
func (w *world) Get(string) (*corev1.Namespace, error) { return w.namespace, nil }

// List implements corelisters.NamespaceLister.
func (w *world) List(labels.Selector) ([]*corev1.Namespace, error) {
	return []*corev1.Namespace{w.namespace}, nil
}

// Params implements policy.Params. The content of params is not known, so errors of expressions
// that read them do not count.
func (w *world) Params(_ context.Context, kind *admissionregistrationv1.ParamKind,
	ref *admissionregistrationv1.ParamRef, _ string) ([]runtime.Object, error) {
	if kind == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(kind.APIVersion)
	u.SetKind(kind.Kind)
	u.SetName("probe")
	u.SetNamespace(metav1.NamespaceDefault)
	return []runtime.Object{u}, nil
}

// Lookup implements policy.Lookups. No other object is known.
func (w *world) Lookup(context.Context, *lookups.Program, lookups.Query) (lookups.Result, error) {
	return lookups.Result{}, nil
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (w *world) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "breakglass" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	w.asked++
	return w.answer, "", nil
}
