package offline

import (
	"context"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/internal/cli/load"
	"github.com/ostiary/ostiary/internal/policy"
)

// World has the objects that evaluations read besides the request. It is safe for
// concurrent use.
type World struct {
	apis       *APIs
	namespaces map[string]*corev1.Namespace
	objects    []load.Object
	authorizer authorizer.UnconditionalAuthorizer
	images     policy.Images

	mu     sync.Mutex
	listed map[schema.GroupVersionKind]*stored
}

// NewWorld returns a world with the objects of files. A namespace that is not among them
// has only the label with its name. Without an authorizer, every check fails.
func NewWorld(apis *APIs, namespaces []*corev1.Namespace, objects []load.Object, a authorizer.UnconditionalAuthorizer) *World {
	w := &World{apis: apis, namespaces: map[string]*corev1.Namespace{}, objects: objects, authorizer: a, listed: map[schema.GroupVersionKind]*stored{}}
	for _, n := range namespaces {
		w.namespaces[n.Name] = namespaceOf(n)
	}
	return w
}

// environment returns the environment of evaluations.
func (w *World) environment() policy.Environment {
	return policy.Environment{
		Namespaces:     w,
		Params:         w,
		ParamKinds:     w,
		Listed:         w,
		Matcher:        matching.NewMatcher(lister{w}, nil), // the client is for namespaces that are not found
		Authorizer:     w.authorizer,
		TypeConverters: w.apis,
		Objects:        w.apis.ObjectInterfaces(),
		Kinds:          w.apis,
		Pods:           w,
		Images:         w.images,
		Now:            time.Now,
	}
}

// GetNamespace implements policy.Namespaces.
func (w *World) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if n := w.namespaces[name]; n != nil {
		return n, nil
	}
	return namespaceOf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}), nil
}

// lister lists namespaces. Each one exists.
type lister struct{ world *World }

// Get implements corelisters.NamespaceLister.
func (l lister) Get(name string) (*corev1.Namespace, error) {
	return l.world.GetNamespace(context.Background(), name)
}

// List implements corelisters.NamespaceLister.
func (l lister) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	var out []*corev1.Namespace
	for _, n := range l.world.namespaces {
		if selector.Matches(labels.Set(n.Labels)) {
			out = append(out, n)
		}
	}
	return out, nil
}

// stored are the objects of a kind. It implements informers.GenericInformer.
type stored struct {
	cache.SharedIndexInformer // nil: nothing but HasSynced is called
	indexer                   cache.Indexer
	resource                  policy.KindResource
}

// Informer implements informers.GenericInformer.
func (s *stored) Informer() cache.SharedIndexInformer { return s }

// HasSynced implements cache.SharedInformer.
func (s *stored) HasSynced() bool { return true }

// Lister implements informers.GenericInformer.
func (s *stored) Lister() cache.GenericLister {
	return cache.NewGenericLister(s.indexer, s.resource.GroupResource())
}

func (s *stored) scope() meta.RESTScope {
	if s.resource.Namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// kind returns the objects of a kind.
func (w *World) kind(kind *admissionregistrationv1.ParamKind) (*stored, error) {
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	if found := w.listed[gvk]; found != nil {
		return found, nil
	}
	resource, err := w.apis.resource(gvk)
	if err != nil {
		return nil, err
	}
	s := &stored{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), resource: resource}
	for i := range w.objects {
		if w.objects[i].GroupVersionKind() != gvk {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(w.objects[i].Raw); err != nil {
			return nil, fmt.Errorf("reading %s: %w", w.objects[i].String(), err)
		}
		if resource.Namespaced && u.GetNamespace() == "" {
			u.SetNamespace(metav1.NamespaceDefault)
		}
		if err := s.indexer.Add(u); err != nil {
			return nil, fmt.Errorf("keeping %s: %w", w.objects[i].String(), err)
		}
	}
	w.listed[gvk] = s
	return s, nil
}

// CheckKind implements policy.ParamKinds.
func (w *World) CheckKind(_ context.Context, kind *admissionregistrationv1.ParamKind) error {
	_, err := w.kind(kind)
	return err
}

// Params implements policy.Params with the rules of the API server.
func (w *World) Params(_ context.Context, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	if kind == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	s, err := w.kind(kind)
	if err != nil {
		return nil, err
	}
	found, err := generic.CollectParams(kind, s, s.scope(), ref, namespace, nil, nil)
	if err != nil {
		return nil, err
	}
	sortObjects(found)
	return found, nil
}

// PodsIn implements policy.Pods.
func (w *World) PodsIn(_ context.Context, namespace string) (out []*corev1.Pod, more int64, err error) {
	pods := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Pod"}
	s, err := w.kind(&pods)
	if err != nil {
		return nil, 0, err
	}
	found, err := s.Lister().ByNamespace(namespace).List(labels.Everything())
	if err != nil {
		return nil, 0, fmt.Errorf("listing Pods: %w", err)
	}
	sortObjects(found)
	for _, o := range found {
		pod := &corev1.Pod{}
		u, _ := o.(*unstructured.Unstructured) // kind stores nothing else
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
			return nil, 0, fmt.Errorf("reading Pod %s: %w", u.GetName(), err)
		}
		out = append(out, pod)
	}
	return out, 0, nil
}
