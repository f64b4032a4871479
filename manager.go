package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/authentication"
	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/configurations"
	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/policyvalidator"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/controllers/status"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/webhooks"
)

// replica is one process of Ostiary, put together and not yet started.
type replica struct {
	options  options.Options
	config   *rest.Config
	log      logr.Logger
	manager  manager.Manager
	client   kubernetes.Interface
	clock    *certificates.ServerClock
	endpoint registration.Endpoint
	around   surroundings
	compiler *policy.Compiler
	reviewer *policyvalidator.Reviewer
	store    *policies.Store
	loader   *policies.Loader
	replicas *replicas.Registry
	reporter *replicas.Reporter
	refusals policies.Refusals
	identity string // among the replicas
	watcher  *certificates.Watcher
	keeper   *certificates.Keeper
	server   *webhooks.Server
	callers  *authentication.Authenticator // nil: everybody may call
	hosted   *backends.Store
	prober   *canary.Prober
	register *configurations.Reconciler
	report   *status.Reconciler
	elector  *leadership.Elector

	// distrusted counts handshakes in which what is served was not trusted.
	distrusted atomic.Uint64
}

// run serves until ctx ends and the server has drained.
func run(ctx context.Context, o options.Options, log logr.Logger) error {
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	r, err := newReplica(config, o, log)
	if err != nil {
		return err
	}
	if err := r.keeper.Permitted(ctx); err != nil {
		return err
	}
	// The server drains first; until it has, everything that it answers from
	// goes on. But another replica may lead at once.
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
			err = errors.New("the manager ended by itself")
		}
		return err
	})
	return group.Wait()
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	// The API server's own fairness decides who waits, not a limit of the client's.
	config.QPS = -1
	config.UserAgent = "ostiary/" + version
	return config, nil
}

func newReplica(config *rest.Config, o options.Options, log logr.Logger) (*replica, error) {
	r := &replica{options: o, config: config, log: log, clock: &certificates.ServerClock{}}
	config.Wrap(r.clock.Wrap)
	var err error
	if r.endpoint, err = endpointOf(o); err != nil {
		return nil, err
	}
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if r.manager, err = newManager(config, o, log, r.metricsOptions()); err != nil {
		return nil, err
	}
	if err := r.manager.Add(manager.RunnableFunc(tuneCollector)); err != nil {
		return nil, fmt.Errorf("adding the tuning of the collector: %w", err)
	}
	for _, build := range []func() error{
		r.addCertificates, r.addSurroundings, r.addReview, r.addPolicies, r.addReplicas, r.addServer, r.addLeader, r.addChecks,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func newManager(config *rest.Config, o options.Options, log logr.Logger, metrics metricsserver.Options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, admissionregistrationv1.AddToScheme, corev1.AddToScheme, certmanager.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("adding to the scheme: %w", err)
		}
	}
	ours := labels.SelectorFromSet(labels.Set{registration.LabelManagedBy: registration.ManagedBy})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Logger:                 log,
		Metrics:                metrics,
		HealthProbeBindAddress: o.HealthAddress,
		Cache: cache.Options{
			// A read of what is not watched is a mistake, not a reason to watch it.
			ReaderFailOnMissingInformer: true,
			DefaultTransform:            cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.WebhookPolicy{}: {},
				&corev1.Namespace{}:       {},
				registration.NewConfiguration(registration.PhaseMutate):   {Label: ours},
				registration.NewConfiguration(registration.PhaseValidate): {Label: ours},
			},
		},
	})
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("the API server has no WebhookPolicy in %s: apply config/crd first", v1alpha1.GroupVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

func (r *replica) addPolicies() error {
	counts := metrics.NewPolicies(ctrlmetrics.Registry)
	host, err := r.host(counts)
	if err != nil {
		return err
	}
	r.store = &policies.Store{Host: host}
	r.hosted = backends.New(backends.Options{
		Client:     r.client,
		Namespace:  r.options.Namespace,
		Rule:       r.options.Authors.Backends(),
		Log:        r.log.WithName("backends"),
		Registerer: ctrlmetrics.Registry,
	})
	r.loader = &policies.Loader{
		Client:           r.manager.GetClient(),
		Store:            r.store,
		Compiler:         r.compiler,
		Metrics:          counts,
		Endpoint:         r.endpoint,
		ExemptNamespaces: append([]string{r.options.Namespace}, r.options.ExemptNamespaces...),
		Prepare:          r.around.prepare,
		Backends:         r.hosted,
		BackendRule:      r.options.Authors.Backends(),
		Refusals:         &r.refusals,
		Bundle:           r.watcher.Bundle,
		Capability:       r.watcher.Path,
		Epoch:            r.watcher.TrustEpoch,
		BundleChanged:    r.watcher.Subscribe(),
	}
	return r.loader.SetupWithManager(r.manager)
}

// addReplicas adds what tells the replicas of each other.
func (r *replica) addReplicas() error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the host's name: %w", err)
	}
	pod := podOf(r.options.Namespace)
	// A container that is started again in its Pod is the same replica.
	r.identity = cmp.Or(pod.Name, host+"-"+uuid.NewString()[:8])
	r.replicas = replicas.NewRegistry(r.client, r.options.Namespace, r.log.WithName("replicas"))
	r.reporter = replicas.NewReporter(replicas.Options{
		Client:    r.client,
		Namespace: r.options.Namespace,
		Identity:  r.identity,
		Pod:       pod,
		Report: func(ctx context.Context) replicas.Report {
			return replicas.Report{
				Policies:        r.loader.Version(ctx),
				Epoch:           r.watcher.Committed(),
				Fingerprint:     r.watcher.Fingerprint(),
				BadCertificates: r.distrusted.Load(),
			}
		},
		Loaded:  r.store.Loaded,
		Current: func(ctx context.Context) error { return r.loader.Current(ctx, r.manager.GetAPIReader()) },
		Changes: []func(context.Context) <-chan struct{}{r.store.Subscribe, func(context.Context) <-chan struct{} { return r.watcher.Subscribe() }},
		Log:     r.log.WithName("replicas"),
	})
	for _, runnable := range []manager.Runnable{r.replicas, r.reporter} {
		if err := r.manager.Add(runnable); err != nil {
			return fmt.Errorf("adding to the manager: %w", err)
		}
	}
	return nil
}

// podOf is the Pod that this process runs in, as the downward API tells it. A
// Pod of another namespace cannot own anything here.
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
	if err := r.addCallers(); err != nil {
		return err
	}
	o := webhooks.Options{
		Address:        r.options.WebhookAddress,
		GetCertificate: r.watcher.GetCertificate,
		Accepts:        r.watcher.Accepts,
		Distrusted: func() {
			r.distrusted.Add(1)
			r.watcher.Distrusted()
		},
		Evaluator:  evaluator{store: r.store, reviewer: r.reviewer},
		Expired:    r.reporter.Expired,
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

// addCallers adds what decides who may call, if it matters.
func (r *replica) addCallers() error {
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
	return r.manager.Add(r.callers)
}

// addLeader adds what only one replica does at a time: certificates,
// configurations and statuses.
func (r *replica) addLeader() error {
	own, err := r.own()
	if err != nil {
		return err
	}
	endpoint, err := endpointOf(r.options)
	if err != nil {
		return err
	}
	recorder := r.manager.GetEventRecorder("ostiary")
	r.prober = canary.NewProber(canary.Options{
		Client:        r.manager.GetClient(),
		Cache:         r.manager.GetCache(),
		Config:        r.config,
		Namespace:     r.options.Namespace,
		Endpoint:      endpoint,
		Owner:         r.definition,
		Bundle:        r.watcher.Bundle,
		Capability:    r.watcher.Path,
		Epoch:         r.watcher.TrustEpoch,
		BundleChanged: r.watcher.Subscribe(),
		Events:        recorder,
		Log:           r.log.WithName("canary"),
		Registerer:    ctrlmetrics.Registry,
	})
	gate := &configurations.ReplicaGate{Live: r.replicas.Live, Subscribe: r.replicas.Subscribe, Self: r.identity}
	r.register = &configurations.Reconciler{
		Client:     r.manager.GetClient(),
		Live:       r.manager.GetAPIReader(),
		Store:      r.store,
		Refusals:   &r.refusals,
		Conflicts:  configurations.NewConflictTracker(ctrlmetrics.Registry),
		Clock:      clock.RealClock{},
		Own:        own,
		Proof:      r.prober,
		Namespace:  r.options.Namespace,
		Gate:       gate,
		Registered: configurations.NewGauge(ctrlmetrics.Registry),
		FailClosed: configurations.NewFailClosed(ctrlmetrics.Registry),

		RefusedConditions: configurations.NewRefusedConditions(ctrlmetrics.Registry),
	}
	r.report = &status.Reconciler{
		Client: r.manager.GetClient(),
		Store:  r.store,
		Events: recorder,
		Clock:  clock.RealClock{},

		Params: r.around.params, Listed: r.around.listed, Images: r.around.images, Schemas: r.around.schemas, Types: r.around.types,
		Contests: r.register.Conflicts, Backends: r.hosted,
		Warnings: r.warnings,
		Gate:     gate,
		Proof:    r.prober,

		Certificate: r.keeper,
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the host's name: %w", err)
	}
	r.elector = &leadership.Elector{
		Client:    r.client,
		Namespace: r.options.Namespace,
		Identity:  host + "_" + uuid.NewString(),
		Disabled:  !r.options.LeaderElect,
		Lead:      r.lead,
		Log:       r.log.WithName("leadership"),
	}
	return r.manager.Add(r.elector)
}

func (r *replica) lead(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.keeper.Run(ctx) })
	group.Go(func() error { return r.around.types.Run(ctx) })
	group.Go(func() error { return r.hosted.Run(ctx) })
	group.Go(func() error { return r.replicas.Sweep(ctx) })
	group.Go(func() error { return r.prober.Run(ctx) })
	for _, build := range []func(cache.Cache, logr.Logger) (controller.Controller, error){r.register.Controller, r.report.Controller} {
		c, err := build(r.manager.GetCache(), r.log.WithName("leader"))
		if err != nil {
			return err
		}
		group.Go(func() error { return c.Start(ctx) })
	}
	return group.Wait()
}

func (r *replica) addChecks() error {
	if err := r.manager.AddHealthzCheck("process", healthz.Ping); err != nil {
		return fmt.Errorf("adding a health check: %w", err)
	}
	for name, check := range map[string]healthz.Checker{
		"policies":     func(*http.Request) error { return r.store.Loaded() },
		"params":       func(*http.Request) error { return errors.Join(r.around.params.Ready(), r.around.listed.Ready()) },
		"resources":    func(*http.Request) error { return r.around.resources.Ready() },
		"schemas":      func(*http.Request) error { return r.around.schemas.Ready() },
		"certificates": func(*http.Request) error { return r.watcher.Ready() },
		"lease":        func(*http.Request) error { return r.reporter.Ready() },
		"server":       r.server.Ready,
		"callers":      func(*http.Request) error { return r.callers.Ready() },
	} {
		if err := r.manager.AddReadyzCheck(name, onChange(r.log, name, check)); err != nil {
			return fmt.Errorf("adding the readiness check %s: %w", name, err)
		}
	}
	return nil
}

// evaluator lets the server ask the store, and the reviewer about policies.
type evaluator struct {
	store    *policies.Store
	reviewer *policyvalidator.Reviewer
}

// Evaluate implements webhooks.Evaluator.
func (e evaluator) Evaluate(ctx context.Context, phase webhooks.Phase, group string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if phase == webhooks.Review {
		return e.reviewer.Review(ctx, request)
	}
	return e.store.Evaluate(ctx, policy.GroupKey{Phase: policy.Phase(phase), Name: group}, request)
}
