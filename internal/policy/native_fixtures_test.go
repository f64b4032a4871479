package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/internal/nativeengine"
)

// world is what both engines find around a request: namespaces, params and an
// authorizer.
type world struct {
	namespaces namespaceMap
	params     map[admissionregistrationv1.ParamKind]paramObjects
	authorizer authorizer.UnconditionalAuthorizer
}

type namespaceMap map[string]*corev1.Namespace

func (m namespaceMap) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if ns, ok := m[name]; ok {
		return ns, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

var testNamespaces = namespaceMap{"shop": {
	ObjectMeta: metav1.ObjectMeta{
		Name: "shop", UID: "5a1c", ResourceVersion: "7", Labels: map[string]string{"tier": "prod"}, Annotations: map[string]string{"note": "x"},
		CreationTimestamp: metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	},
	Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
	Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
}}

// The kinds of params: a built-in one in namespaces, which the native engine
// holds as Go structs without their kind, and a custom one that is not.
var (
	configMaps = admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	limits     = admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}
)

var testWorld = &world{
	namespaces: testNamespaces,
	params: map[admissionregistrationv1.ParamKind]paramObjects{
		configMaps: {scope: meta.RESTScopeNamespace, objects: []runtime.Object{
			paramConfigMap("shop", "first", "a", "1"), paramConfigMap("shop", "second", "a", "2"), paramConfigMap("shop", "third", "b", "3"),
			paramConfigMap("office", "first", "a", "10"),
		}},
		limits: {scope: meta.RESTScopeRoot, objects: []runtime.Object{paramLimit("high", 9), paramLimit("low", 2)}},
	},
	authorizer: authorizer.AuthorizerFunc(answerByVerb),
}

func paramConfigMap(namespace, name, set, most string) runtime.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"set": set}}, Data: map[string]string{"max": most}}
}

func paramLimit(name string, most int64) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Limit",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"set": "a"}},
		"spec":     map[string]any{"max": most, "names": []any{"web", nil, 1.5}},
	}}
}

// answerByVerb allows, denies, has no opinion or fails as the verb says. The
// reason tells all of the question.
func answerByVerb(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	fields, fieldsErr := a.GetFieldSelector()
	selectors, labelsErr := a.GetLabelSelector()
	reason := fmt.Sprint(a.GetUser(), a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), a.IsResourceRequest(), a.GetPath(), fields, fieldsErr, selectors, labelsErr)
	switch strings.SplitN(a.GetVerb(), "-", 2)[0] {
	case "allow":
		return authorizer.DecisionAllow, reason, nil
	case "deny":
		return authorizer.DecisionDeny, reason, nil
	case "partly":
		return authorizer.DecisionAllow, reason, errors.New("a role is missing")
	case "fail":
		return authorizer.DecisionNoOpinion, reason, errors.New("the authorizer is gone")
	default:
		return authorizer.DecisionNoOpinion, reason, nil
	}
}

// host is this world as our side sees it.
func (w *world) host() Environment {
	return Environment{
		Now: time.Now, Namespaces: w.namespaces, Params: w, Authorizer: w.authorizer,
		Matcher: w.matcher(), Objects: testInterfaces(), TypeConverters: testConverters{},
	}
}

// native is this world as the native engine sees it.
func (w *world) native() *nativeengine.Cluster {
	return &nativeengine.Cluster{
		Objects: testInterfaces(), Matcher: w.matcher(), Authorizer: w.authorizer, Converters: testConverters{}, Params: w.informer,
	}
}

func (w *world) matcher() *matching.Matcher {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, ns := range w.namespaces {
		if err := indexer.Add(ns); err != nil {
			panic(err)
		}
	}
	return matching.NewMatcher(corelisters.NewNamespaceLister(indexer), liveNamespaces{namespaces: w.namespaces})
}

// liveNamespaces is the one call of a client that the native engine makes past
// its cache of namespaces.
type liveNamespaces struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	corev1client.NamespaceInterface
	namespaces namespaceMap
}

func (l liveNamespaces) CoreV1() corev1client.CoreV1Interface        { return l }
func (l liveNamespaces) Namespaces() corev1client.NamespaceInterface { return l }
func (l liveNamespaces) RESTClient() rest.Interface                  { return nil }
func (l liveNamespaces) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return l.namespaces.GetNamespace(ctx, name)
}

// Params implements Params: by the native rules, as objects with their kind.
func (w *world) Params(_ context.Context, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	informer, scope := w.informer(kind)
	found, err := generic.CollectParams(kind, informer, scope, ref, namespace, nil, nil)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(found)
	for i, o := range out {
		if _, ok := o.(*unstructured.Unstructured); ok {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion(kind.APIVersion)
		u.SetKind(kind.Kind)
		out[i] = u
	}
	return out, nil
}

// informer is the native engine's way to params; nil for a kind that is not known.
func (w *world) informer(kind *admissionregistrationv1.ParamKind) (informers.GenericInformer, meta.RESTScope) {
	if kind == nil {
		return nil, nil
	}
	known, ok := w.params[*kind]
	if !ok {
		return nil, nil
	}
	return known, known.scope
}

// paramObjects are the objects of a kind. The order in which they are listed is
// that of the native engine's cache, which is none, made definite.
type paramObjects struct {
	scope   meta.RESTScope
	objects []runtime.Object
}

func (p paramObjects) Informer() cache.SharedIndexInformer { return syncedInformer{} }
func (p paramObjects) Lister() cache.GenericLister         { return p }

func (p paramObjects) List(selector labels.Selector) ([]runtime.Object, error) {
	var out []runtime.Object
	for _, o := range p.objects {
		if accessor, err := meta.Accessor(o); err == nil && selector.Matches(labels.Set(accessor.GetLabels())) {
			out = append(out, o)
		}
	}
	return out, nil
}

func (p paramObjects) Get(name string) (runtime.Object, error) {
	for _, o := range p.objects {
		if accessor, err := meta.Accessor(o); err == nil && accessor.GetName() == name {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "params"}, name)
}

func (p paramObjects) ByNamespace(namespace string) cache.GenericNamespaceLister {
	out := paramObjects{scope: p.scope}
	for _, o := range p.objects {
		if accessor, err := meta.Accessor(o); err == nil && accessor.GetNamespace() == namespace {
			out.objects = append(out.objects, o)
		}
	}
	return out
}

type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }
