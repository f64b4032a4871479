// Package manager connects the controllers and the webhook server, and runs them as one
// replica.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/authentication"
	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/policyvalidator"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/controllers/sources"
	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/applypatch"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/webhooks"
)

// replica is one process of Ostiary. Its fields are set in this order: each is
// built from those above it.
type replica struct {
	options  options.Options
	log      logr.Logger
	clock    *certificates.ServerClock
	config   *rest.Config
	client   kubernetes.Interface
	endpoint registration.Endpoint
	host     string
	pod      replicas.Pod
	identity string // of the Lease of this replica
	manager  manager.Manager

	lease    *replicas.Lease
	replicas *replicas.Registry
	provider *certificates.Provider
	rotator  *certificates.Rotator
	sources  *sources.Sources
	reviewer *policyvalidator.Reviewer
	backends *backends.Store
	store    *policies.Store
	refusals policies.Refusals
	loader   *policies.Loader
	callers  *authentication.Authenticator // nil: callers are not authenticated
	counts   *violations.Counts
	server   *webhooks.Server
	elector  *leadership.Elector

	// distrusted counts handshakes in which the client did not trust the serving
	// certificate.
	distrusted atomic.Uint64
}

// Run serves until ctx ends and the server has drained.
func Run(ctx context.Context, o options.Options, version string, log logr.Logger) error {
	config, err := RESTConfig(o.Kubeconfig, version)
	if err != nil {
		return err
	}
	r, err := newReplica(ctx, config, o, log)
	if err != nil {
		return err
	}
	if err := r.rotator.Permitted(ctx); err != nil {
		return err
	}
	// The server drains first and needs everything else until it has. Another
	// replica may become the leader meanwhile.
	r.elector.Until = ctx.Done()
	managing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		return r.server.Start(serving)
	})
	group.Go(func() error {
		err := r.manager.Start(managing)
		if err == nil && serving.Err() == nil {
			err = errors.New("the manager stopped before the webhook server")
		}
		return err
	})
	return group.Wait()
}

// RESTConfig returns the configuration of clients of the API server: from the
// file, or else from $KUBECONFIG, or else from the Pod's ServiceAccount.
func RESTConfig(kubeconfig, version string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.QPS = -1 // the API server's priority and fairness limits requests
	config.UserAgent = "ostiary/" + version
	return config, nil
}

func newReplica(ctx context.Context, config *rest.Config, o options.Options, log logr.Logger) (*replica, error) {
	tuneCollector() // before the first objects are read
	r := &replica{options: o, config: config, log: log, clock: &certificates.ServerClock{}}
	config.Wrap(r.clock.Wrap)
	config.Wrap(applypatch.Wrap)
	var err error
	if r.options.Load.Connections, err = limitConnections(o, maxFiles(), log); err != nil {
		return nil, err
	}
	if r.endpoint, err = endpointOf(o); err != nil {
		return nil, err
	}
	if r.host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("finding the host's name: %w", err)
	}
	// A container that restarts in its Pod is the same replica.
	r.pod = podOf(o.Namespace)
	r.identity = cmp.Or(r.pod.Name, r.host+"-"+uuid.NewString()[:8])
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	r.store = &policies.Store{}
	if r.manager, err = awaitManager(ctx, config, log, r.store.Compact); err != nil {
		return nil, err
	}
	r.lease = replicas.NewLease()
	r.replicas = replicas.NewRegistry(r.client, o.Namespace, log.WithName("replicas"))
	for _, add := range []func() error{
		r.addCertificates, r.addMetrics, r.addSources, r.addPolicies, r.addReporter, r.addServer, r.addLeader, r.addProbes,
	} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	if err := r.add(r.replicas); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *replica) add(runnables ...manager.Runnable) error {
	for _, runnable := range runnables {
		if err := r.manager.Add(runnable); err != nil {
			return fmt.Errorf("adding to the manager: %w", err)
		}
	}
	return nil
}

// The API server serves a new kind a moment after its definition was applied.
const (
	kindTimeout  = 20 * time.Second
	kindInterval = 500 * time.Millisecond
)

// awaitManager returns a manager as soon as the API server has the kind WebhookPolicy.
func awaitManager(ctx context.Context, config *rest.Config, log logr.Logger, transform toolscache.TransformFunc) (mgr manager.Manager, err error) {
	waiting := false
	_ = wait.PollUntilContextTimeout(ctx, kindInterval, kindTimeout, true, func(context.Context) (bool, error) {
		mgr, err = newManager(config, log, transform)
		if !meta.IsNoMatchError(err) {
			return true, nil
		}
		if !waiting {
			log.Info("Waiting for the kind WebhookPolicy", "timeout", kindTimeout.String())
			waiting = true
		}
		return false, nil
	})
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("the API server has no WebhookPolicy in %s: apply config/crd first", v1alpha1.GroupVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

func newManager(config *rest.Config, log logr.Logger, transform toolscache.TransformFunc) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, admissionregistrationv1.AddToScheme, corev1.AddToScheme, certmanager.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("adding to the scheme: %w", err)
		}
	}
	ours := labels.SelectorFromSet(labels.Set{registration.LabelManagedBy: registration.ManagedBy})
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Logger:                 log,
		Metrics:                metricsserver.Options{BindAddress: "0"}, // see addMetrics
		HealthProbeBindAddress: "0",                                     // see addProbes
		Cache: cache.Options{
			// A read of an object that is not watched is a defect and must not start a watch.
			ReaderFailOnMissingInformer: true,
			DefaultTransform:            cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.WebhookPolicy{}: {Transform: transform},
				&corev1.Namespace{}:       {Transform: sources.CompactNamespace},
				registration.NewConfiguration(registration.PhaseMutate):   {Label: ours},
				registration.NewConfiguration(registration.PhaseValidate): {Label: ours},
			},
		},
	})
}

// addSources adds the objects that evaluations read.
func (r *replica) addSources() (err error) {
	r.sources, err = sources.New(sources.Options{
		Config:        r.config,
		Client:        r.client,
		Namespace:     r.options.Namespace,
		ParamsAccount: r.options.Authors.ParamsAccount,
		CacheMemory:   r.options.Load.CacheMemory.Value(),
		Log:           r.log,
		Registerer:    ctrlmetrics.Registry,
	})
	if err != nil {
		return err
	}
	// Namespaces are read on the admission path, so they are watched from the start.
	if _, err := r.manager.GetCache().GetInformer(context.Background(), &corev1.Namespace{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	return r.add(r.sources.Runnables()...)
}

// addPolicies adds what compiles policies. The reviewer and the loader share a
// compiler, so that they do not compile the same policy twice.
func (r *replica) addPolicies() error {
	compiler := r.sources.Versions.Compiler
	counts := metrics.NewPolicies(ctrlmetrics.Registry)
	environment, err := r.environment(counts)
	if err != nil {
		return err
	}
	if environment.Violated, err = r.addViolations(); err != nil {
		return err
	}
	exempt := append([]string{r.options.Namespace}, r.options.ExemptNamespaces...)
	impact, err := policyvalidator.NewImpact(r.config, r.options.Namespace, exempt, environment)
	if err != nil {
		return err
	}
	r.reviewer = policyvalidator.New(compiler, r.sources.Resources, r.liveCount, r.options.Authors.Backends(), r.log.WithName("review"), impact, r.sources.Checks()...)
	r.store.Host = environment
	r.backends = backends.New(backends.Options{
		Client:     r.client,
		Namespace:  r.options.Namespace,
		Rule:       r.options.Authors.Backends(),
		Log:        r.log.WithName("backends"),
		Registerer: ctrlmetrics.Registry,
	})
	r.loader = &policies.Loader{
		Client:           r.manager.GetClient(),
		Store:            r.store,
		Compiler:         compiler,
		CompilerChanged:  r.sources.Versions.Subscribe,
		Metrics:          counts,
		Endpoint:         r.endpoint,
		ExemptNamespaces: exempt,
		Prepare:          r.sources.Prepare,
		Backends:         r.backends,
		BackendRule:      r.options.Authors.Backends(),
		Refusals:         &r.refusals,
		Bundle:           r.provider.Bundle,
		Capability:       r.provider.Path,
		Epoch:            r.provider.TrustEpoch,
		BundleChanged:    r.provider.Subscribe(context.Background()),
	}
	return r.loader.SetupWithManager(r.manager)
}

// liveCount is the number of live replicas, 0 while it is unknown.
func (r *replica) liveCount() int {
	live, err := r.replicas.Live(context.Background())
	if err != nil {
		return 0
	}
	return len(live)
}

// addReporter adds what reports the state of this replica in its Lease.
func (r *replica) addReporter() error {
	return r.add(replicas.NewReporter(replicas.Options{
		Client:    r.client,
		Namespace: r.options.Namespace,
		Lease:     r.lease,
		Identity:  r.identity,
		Pod:       r.pod,
		Report: func(context.Context) replicas.Report {
			return replicas.Report{
				Policies:        r.loader.Version(),
				Epoch:           r.provider.Committed(),
				Fingerprint:     r.provider.Fingerprint(),
				BadCertificates: r.distrusted.Load(),
			}
		},
		Violations: r.counts.Encode,

		Loaded:  r.store.Loaded,
		Current: func(ctx context.Context) error { return r.loader.Current(ctx, r.manager.GetAPIReader()) },
		Changes: []func(context.Context) <-chan struct{}{r.store.Subscribe, r.provider.Subscribe},
		Log:     r.log.WithName("replicas"),
	}))
}

// podOf is the Pod that this process runs in, according to the downward API. A Pod
// of another namespace cannot own objects in this one.
func podOf(namespace string) replicas.Pod {
	pod := replicas.Pod{Name: os.Getenv("POD_NAME"), UID: types.UID(os.Getenv("POD_UID"))}
	if in := os.Getenv("POD_NAMESPACE"); in != "" && in != namespace {
		pod.UID = ""
	}
	return pod
}

func endpointOf(o options.Options) (registration.Endpoint, error) {
	if o.WebhookURL != "" {
		e := registration.Endpoint{URL: o.WebhookURL}
		return e, e.Validate()
	}
	service, err := o.Service()
	if err != nil {
		return registration.Endpoint{}, err
	}
	e := registration.Endpoint{Service: &registration.Service{Namespace: service.Namespace, Name: service.Name, Port: service.Port}}
	return e, e.Validate()
}

func (r *replica) addServer() error {
	if err := r.addAuthenticator(); err != nil {
		return err
	}
	o := webhooks.Options{
		Address:        r.options.WebhookAddress,
		GetCertificate: r.provider.GetCertificate,
		Accepts:        r.provider.Accepts,
		Distrusted: func() {
			r.distrusted.Add(1)
			r.provider.ReportDistrust()
		},
		Evaluator:  evaluator{r.store, r.reviewer},
		Expired:    r.lease.Expired,
		Registerer: ctrlmetrics.Registry,
		Log:        r.log.WithName("webhooks"),
		Drain:      webhooks.Drain{Min: r.options.DrainMin, Max: r.options.DrainMax},

		MaxEvaluations: r.options.Load.Evaluations, MaxInFlight: r.options.Load.InFlight,
		MaxConnections: r.options.Load.Connections, MaxInFlightBytes: r.options.Load.BodyMemory.Value(),
	}
	if r.callers != nil {
		o.Authenticator = r.callers
	}
	var err error
	r.server, err = webhooks.New(o)
	return err
}

// addAuthenticator adds what authenticates callers, if the options ask for it.
func (r *replica) addAuthenticator() error {
	if !r.options.AuthenticatesCallers() {
		return nil
	}
	var err error
	if r.callers, err = authentication.New(authentication.Options{
		Client:      r.client,
		Namespace:   r.options.Namespace,
		CAFile:      r.options.ClientCA,
		Names:       r.options.ClientNames,
		TokenSecret: r.options.CallerTokenSecret,
		BasicSecret: r.options.CallerBasicSecret,
		Clock:       clock.RealClock{},
		Log:         r.log.WithName("callers"),
		Registerer:  ctrlmetrics.Registry,
	}); err != nil {
		return err
	}
	return r.add(r.callers)
}

// readiness returns the checks that decide whether the replica is ready.
func (r *replica) readiness() map[string]func() error {
	return map[string]func() error{
		"policies":     r.store.Loaded,
		"params":       func() error { return errors.Join(r.sources.Params.Ready(), r.sources.PluginObjects.Ready()) },
		"resources":    r.sources.Resources.Ready,
		"schemas":      r.sources.Schemas.Ready,
		"certificates": r.provider.Ready,
		"lease":        r.lease.Ready,
		"server":       func() error { return r.server.Ready(nil) },
		"callers":      r.callers.Ready,
	}
}

// evaluator evaluates policies, and reviews WebhookPolicies.
type evaluator struct {
	*policies.Store
	*policyvalidator.Reviewer
}
