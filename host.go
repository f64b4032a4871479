package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/authorization"
	"github.com/ostiary/ostiary/controllers/images"
	"github.com/ostiary/ostiary/controllers/params"
	"github.com/ostiary/ostiary/controllers/resources"
	"github.com/ostiary/ostiary/controllers/schemas"
	"github.com/ostiary/ostiary/controllers/status"
	"github.com/ostiary/ostiary/controllers/typechecking"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/queue"
)

// liveRead bounds the reads past a cache that a request may wait for, where
// the API server's code makes them without the request's own time.
const liveRead = time.Second

// Of the changes that a policy makes, the first are checked for being made again
// on their own result, and then one in so many: an evaluation more, beside the
// requests.
const (
	recheckFirst = 10
	recheckEvery = 1000
)

// surroundings are what evaluations read beside the request.
type surroundings struct {
	params    *params.Store // of policies
	listed    *params.Store // of plugins
	images    *images.Store
	resources *resources.Resources
	schemas   *schemas.Converters
	types     *typechecking.Checker
}

func (r *replica) addSurroundings() error {
	known, err := discovery.NewDiscoveryClientForConfig(r.config)
	if err != nil {
		return fmt.Errorf("making a client for discovery: %w", err)
	}
	known.UseLegacyDiscovery = true // only that tells which resources are the same
	s := &r.around
	if err := r.addObjects(known); err != nil {
		return err
	}
	s.images = images.New(r.client, r.options.Namespace, r.log.WithName("images"))
	s.resources = resources.New(known, r.log.WithName("resources"))
	s.schemas = schemas.New(patch.NewTypeConverterManager(nil, known.OpenAPIV3()), s.resources, r.log.WithName("schemas"))
	s.types = typechecking.New(validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: known},
		RestMapper:     r.manager.GetRESTMapper(),
	}, r.log.WithName("typechecking"))
	for _, runnable := range []manager.Runnable{s.params, s.listed, s.images, s.resources, s.schemas} {
		if err := r.manager.Add(runnable); err != nil {
			return fmt.Errorf("adding to the manager: %w", err)
		}
	}
	// Namespaces are read on the admission path, so they are watched from the start.
	if _, err := r.manager.GetCache().GetInformer(context.Background(), &corev1.Namespace{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	return nil
}

// addObjects adds what policies read as params, and what plugins list. The former
// is read with the permissions of an account of its own, so that authors of
// policies read no more than is granted for params.
func (r *replica) addObjects(known params.Discovery) error {
	own, err := dynamic.NewForConfig(r.config)
	if err != nil {
		return fmt.Errorf("making a client for plugins: %w", err)
	}
	ownAccount := r.options.Namespace + "/ostiary"
	r.around.listed = params.New(params.Options{Client: own, Account: ownAccount, Discovery: known, Log: r.log.WithName("objects")})
	o := params.Options{Client: own, Account: ownAccount, Discovery: known, Log: r.log.WithName("params"), Registerer: ctrlmetrics.Registry}
	if name := r.options.Authors.ParamsAccount; name != "" {
		config := rest.CopyConfig(r.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(r.options.Namespace, name)}
		if o.Client, err = dynamic.NewForConfig(config); err != nil {
			return fmt.Errorf("making a client for params: %w", err)
		}
		o.Account, o.Aggregated = r.options.Namespace+"/"+name, true
	}
	r.around.params = params.New(o)
	return nil
}

// prepare is told which policies may be asked.
func (s *surroundings) prepare(policies []*v1alpha1.WebhookPolicy) {
	var kinds, listed []admissionregistrationv1.ParamKind
	var backends []policy.SecretKey
	for _, p := range policies {
		if p.Spec.ReadsParams() {
			kinds = append(kinds, *p.Spec.ParamKind)
		}
		listed = append(listed, plugins.KindsOf(p)...)
		if at, asks := plugins.BackendOf(p); asks {
			backends = append(backends, at)
		}
	}
	s.images.Want(backends)
	s.params.Want(kinds)
	s.listed.Want(listed)
	s.resources.Need(slices.ContainsFunc(policies, needsResources))
	s.schemas.Want(policies)
	s.types.Want(policies)
}

// needsResources reports whether a policy asks what else a resource is called,
// or what kind it is of.
func needsResources(p *v1alpha1.WebhookPolicy) bool {
	constraints := p.Spec.MatchConstraints
	return len(p.Spec.Mutations) > 0 || plugins.AsksForKinds(p) || (constraints != nil && (len(constraints.ExcludeResourceRules) > 0 || slices.ContainsFunc(constraints.ResourceRules, named))) ||
		slices.ContainsFunc(p.Spec.Bindings, func(b v1alpha1.Binding) bool { return b.MatchResources != nil })
}

// named reports whether a rule is for some objects only: such a rule that does
// not match leaves the question to those for other names of the resource.
func named(r admissionregistrationv1.NamedRuleWithOperations) bool { return len(r.ResourceNames) > 0 }

// host is what evaluations need of this process.
func (r *replica) host(counts *metrics.Policies) (policy.Host, error) {
	bounded := rest.CopyConfig(r.config)
	bounded.Timeout = liveRead
	client, err := kubernetes.NewForConfig(bounded)
	if err != nil {
		return policy.Host{}, fmt.Errorf("making a client for matching: %w", err)
	}
	found := namespaces{cached: r.manager.GetCache(), live: r.manager.GetAPIReader()}
	log := r.log.WithName("policies")
	name, err := os.Hostname()
	if err != nil {
		return policy.Host{}, fmt.Errorf("finding the host's name: %w", err)
	}
	repeats := &status.Repeats{Client: r.manager.GetClient(), Events: r.manager.GetEventRecorder("ostiary"), Clock: clock.RealClock{}, Replica: name}
	if err := repeats.SetupWithManager(r.manager); err != nil {
		return policy.Host{}, err
	}
	return policy.Host{
		Namespaces:     found,
		Kinds:          r.around.resources,
		Pods:           newPods(r.client.CoreV1()),
		Params:         r.around.params,
		Listed:         r.around.listed,
		Images:         r.around.images,
		Matcher:        resources.Matcher{Matcher: matching.NewMatcher(namespaceLister{found}, client), Resources: r.around.resources},
		Authorizer:     authorization.New(r.client.AuthorizationV1().SubjectAccessReviews(), ctrlmetrics.Registry),
		BreakGlass:     r.options.BreakGlass,
		TypeConverters: r.around.schemas,
		Objects:        r.around.resources.Interfaces(scheme.Scheme),
		Now:            clock.RealClock{}.Now,
		Observe:        counts.Observe,
		Recheck: &policy.Recheck{First: recheckFirst, Every: recheckEvery, Later: repeats.Later, Found: func(found policy.Repeat) {
			counts.NotIdempotent(found.Policy)
			repeats.Found(found)
		}},
		Panicked: func(found policy.PanicReport) {
			counts.Panicked(found.Policy)
			if found.Stack != nil { // at most every few seconds, whatever callers send
				log.Error(found.Err, "evaluation panicked", "policy", found.Policy, "generation", found.Generation, "stack", string(found.Stack))
				repeats.Panicked(found)
			}
		},
	}, nil
}

// namespaces finds a namespace in the cache; one that was created a moment ago
// may only be in the API server, as the native engine knows too.
type namespaces struct {
	cached, live client.Reader
}

// GetNamespace implements policy.Namespaces.
func (n namespaces) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := n.get(ctx, name)
	if apierrors.IsNotFound(err) {
		queue.Yield(ctx, func() { err = n.live.Get(ctx, client.ObjectKey{Name: name}, ns) })
	}
	return ns, err
}

func (n namespaces) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	return ns, n.cached.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
}

// namespaceLister gives the matcher the namespaces of the cache. It reads past
// it by itself.
type namespaceLister struct{ namespaces namespaces }

var _ corelisters.NamespaceLister = namespaceLister{}

// Get implements corelisters.NamespaceLister.
func (l namespaceLister) Get(name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(context.Background(), liveRead)
	defer cancel()
	return l.namespaces.get(ctx, name)
}

// List implements corelisters.NamespaceLister.
func (l namespaceLister) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(context.Background(), liveRead)
	defer cancel()
	var list corev1.NamespaceList
	if err := l.namespaces.cached.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	out := make([]*corev1.Namespace, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
