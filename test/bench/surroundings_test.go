package bench_test

import (
	"context"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/bench"
)

// surroundings are what policies read besides a review: its Namespace, and params.
type surroundings struct {
	namespace *corev1.Namespace
	params    map[string]*unstructured.Unstructured // by name
}

func surroundingsOf(tb testing.TB, set string) *surroundings {
	tb.Helper()
	params, err := bench.Params(set)
	if err != nil {
		tb.Fatal(err)
	}
	s := &surroundings{
		namespace: &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: bench.ReviewNamespace, Labels: bench.Native.Labels()},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		},
		params: map[string]*unstructured.Unstructured{},
	}
	for _, p := range params {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			tb.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		s.params[p.Name] = u
	}
	return s
}

// host is the environment of Ostiary.
func (s *surroundings) host() policy.Environment {
	return policy.Environment{
		Now:        time.Now,
		Namespaces: s,
		Params:     s,
		Objects:    admission.NewObjectInterfacesFromScheme(scheme.Scheme),
	}
}

// GetNamespace implements pluginapi.Namespaces.
func (s *surroundings) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if name == s.namespace.Name {
		return s.namespace, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

// Params implements policy.Params for params that are named.
func (s *surroundings) Params(_ context.Context, _ *admissionregistrationv1.ParamKind,
	ref *admissionregistrationv1.ParamRef, _ string) ([]runtime.Object, error) {
	if ref == nil {
		return []runtime.Object{nil}, nil
	}
	if found, ok := s.params[ref.Name]; ok {
		return []runtime.Object{found}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), ref.Name)
}

// cluster is the environment of the native engine.
func (s *surroundings) cluster(tb testing.TB) *nativeengine.Cluster {
	tb.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := namespaces.Add(s.namespace); err != nil {
		tb.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, p := range s.params {
		objects = append(objects, p)
	}
	params, err := nativeengine.NewParams(schema.GroupResource{Resource: "configmaps"}, objects...)
	if err != nil {
		tb.Fatal(err)
	}
	return &nativeengine.Cluster{
		Objects: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
		Matcher: matching.NewMatcher(corelisters.NewNamespaceLister(namespaces), nil),
		Params: func(*admissionregistrationv1.ParamKind) (informers.GenericInformer, meta.RESTScope) {
			return params, meta.RESTScopeNamespace
		},
	}
}
