package offline

import (
	"cmp"
	"context"
	"errors"
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

	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/policy"
)

// World has the objects that evaluations read besides the request. It is safe for
// concurrent use.
type World struct {
	apis       *APIs
	namespaces map[string]*corev1.Namespace
	objects    []load.Object
	authorizer authorizer.UnconditionalAuthorizer
	images     pluginapi.Images
	cluster    Cluster // nil without one
	now        func() time.Time
	exceptions *exceptions.Index

	mu      sync.Mutex
	listed  map[listing]*stored
	indexes map[indexed]*lookups.Index
	live    map[string]*corev1.Namespace // of the cluster
}

// Cluster has the objects of a cluster.
type Cluster interface {
	// GetNamespace returns an error if there is no Namespace of that name.
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// List returns the objects of a resource, of a namespaced one those in a namespace, and
	// with a name at most that object.
	List(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) ([]*unstructured.Unstructured, error)
}

// listing says which objects are listed. Without a cluster, they are all of a kind.
type listing struct {
	kind            schema.GroupVersionKind
	namespace, name string
	everywhere      bool // in all namespaces of the cluster
}

// NewWorld returns a world with the objects of files. A namespace that is not among them
// has only the label with its name. Without an authorizer, every check fails.
func NewWorld(apis *APIs, namespaces []*corev1.Namespace, objects []load.Object, a authorizer.UnconditionalAuthorizer) *World {
	w := &World{
		apis: apis, namespaces: map[string]*corev1.Namespace{}, objects: objects, authorizer: a,
		listed: map[listing]*stored{}, indexes: map[indexed]*lookups.Index{}, live: map[string]*corev1.Namespace{}, now: time.Now,
	}
	for _, n := range namespaces {
		w.namespaces[n.Name] = namespaceOf(n)
	}
	return w
}

// AddImages adds the answers of the backends of plugins.
func (w *World) AddImages(i pluginapi.Images) { w.images = i }

// StopClock makes all later evaluations take place at the same time, so that plugins that count requests in time decide
// the same on a fast and on a slow machine.
func (w *World) StopClock() { w.SetTime(time.Now()) }

// AddCluster adds the objects of a cluster. Those of files replace them.
func (w *World) AddCluster(c Cluster) { w.cluster = c }

// environment returns the environment of evaluations.
func (w *World) environment() policy.Environment {
	return policy.Environment{
		Namespaces:     w,
		Params:         w,
		ParamKinds:     w,
		Listed:         w,
		Lookups:        w,
		Matcher:        matching.NewMatcher(lister{w}, nil), // the client is for namespaces that are not found
		Authorizer:     w.authorizer,
		TypeConverters: w.apis,
		Objects:        w.apis.ObjectInterfaces(),
		Kinds:          w.apis,
		Pods:           w,
		Images:         w.images,
		Exceptions:     w.exceptions,
		Now:            w.now,
	}
}

// GetNamespace implements pluginapi.Namespaces.
func (w *World) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if n := w.namespaces[name]; n != nil {
		return n, nil
	}
	if w.cluster == nil {
		return namespaceOf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.live[name]; n != nil {
		return n, nil
	}
	n, err := w.cluster.GetNamespace(ctx, name)
	if err == nil {
		w.live[name] = n
	}
	return n, err
}

// lister lists namespaces. Without a cluster, each one exists.
type lister struct{ world *World }

// Get implements corelisters.NamespaceLister.
func (l lister) Get(name string) (*corev1.Namespace, error) {
	n, err := l.world.GetNamespace(context.Background(), name)
	if err != nil { // the matcher has no client for one that is not found
		return nil, errors.New(err.Error())
	}
	return n, nil
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
	resource                  pluginapi.KindResource
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

// kind returns the objects of a kind. The namespace and the name select those of a cluster.
func (w *World) kind(ctx context.Context, kind *admissionregistrationv1.ParamKind, namespace, name string) (*stored, error) {
	l := listing{kind: schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)}
	resource, err := w.apis.resource(l.kind)
	if err != nil {
		return nil, err
	}
	if w.cluster != nil {
		l.name = name
		if resource.Namespaced {
			l.namespace = namespace
		}
	}
	return w.list(ctx, l, resource)
}

// list returns the objects of a listing.
func (w *World) list(ctx context.Context, l listing, resource pluginapi.KindResource) (*stored, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if found := w.listed[l]; found != nil {
		return found, nil
	}
	s := &stored{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), resource: resource}
	if err := w.addLive(ctx, s, l); err != nil {
		return nil, err
	}
	for i := range w.objects {
		if w.objects[i].GroupVersionKind() != l.kind {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(w.objects[i].Raw); err != nil {
			return nil, fmt.Errorf("reading %s: %w", w.objects[i].String(), err)
		}
		if resource.Namespaced && u.GetNamespace() == "" {
			u.SetNamespace(cmp.Or(w.apis.DefaultNamespace, metav1.NamespaceDefault))
		}
		if err := s.indexer.Add(u); err != nil {
			return nil, fmt.Errorf("keeping %s: %w", w.objects[i].String(), err)
		}
	}
	w.listed[l] = s
	return s, nil
}

// addLive adds the objects of the cluster. A request without a namespace has none of a
// namespaced kind.
func (w *World) addLive(ctx context.Context, s *stored, l listing) error {
	if w.cluster == nil || s.resource.Namespaced && l.namespace == "" && !l.everywhere {
		return nil
	}
	live, err := w.cluster.List(ctx, s.resource.GroupVersionResource, l.namespace, l.name)
	if err != nil {
		return err
	}
	for _, u := range live {
		if err := s.indexer.Add(u); err != nil {
			return fmt.Errorf("keeping %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

// CheckKind implements policy.ParamKinds.
func (w *World) CheckKind(_ context.Context, kind *admissionregistrationv1.ParamKind) error {
	_, err := w.apis.resource(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	return err
}

// Params implements policy.Params with the rules of the API server.
func (w *World) Params(ctx context.Context, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	if kind == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	s, err := w.kind(ctx, kind, cmp.Or(ref.Namespace, namespace), ref.Name)
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

// PodsIn implements pluginapi.Pods.
func (w *World) PodsIn(ctx context.Context, namespace string) (out []*corev1.Pod, more int64, err error) {
	pods := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Pod"}
	s, err := w.kind(ctx, &pods, namespace, "")
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
