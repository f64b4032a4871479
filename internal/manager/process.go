package manager

import (
	"cmp"
	"context"
	"fmt"
	"os"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/go-logr/logr"
	"github.com/google/uuid"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/controllers/sources"
	"github.com/ostiary/ostiary/internal/applypatch"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// process is what all parts of a replica use: its flags, its clients, its names, and what
// it knows about the other replicas.
type process struct {
	options  options.Options
	log      logr.Logger
	clock    *certificates.ServerClock
	config   *rest.Config
	version  versionskew.Version
	client   kubernetes.Interface
	manager  manager.Manager
	endpoint registration.Endpoint
	host     string
	pod      replicas.Pod
	identity string // of the Lease of this replica
	lease    *replicas.Lease
	replicas *replicas.Registry
}

// newProcess returns a process whose manager keeps policies as compact makes them.
func newProcess(
	ctx context.Context, config *rest.Config, o options.Options, log logr.Logger, compact toolscache.TransformFunc,
) (process, error) {
	clock := &certificates.ServerClock{}
	config.Wrap(clock.Wrap)
	config.Wrap(applypatch.Wrap)
	connections, err := limitConnections(o, maxFiles(), log)
	if err != nil {
		return process{}, err
	}
	o.Load.Connections = connections
	endpoint, err := endpointOf(o)
	if err != nil {
		return process{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return process{}, fmt.Errorf("finding the host's name: %w", err)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return process{}, fmt.Errorf("making a client: %w", err)
	}
	version := versionskew.CurrentVersion()
	mgr, err := awaitManager(ctx, config, log, compact, version)
	if err != nil {
		return process{}, err
	}
	pod := podOf(o.Namespace)
	return process{
		options:  o,
		log:      log,
		clock:    clock,
		config:   config,
		version:  version,
		client:   api,
		manager:  mgr,
		endpoint: endpoint,
		host:     host,
		pod:      pod,
		// A container that restarts in its Pod is the same replica.
		identity: cmp.Or(pod.Name, host+"-"+uuid.NewString()[:8]),
		lease:    replicas.NewLease(),
		replicas: replicas.NewRegistry(api, o.Namespace, log.WithName("replicas")),
	}, nil
}

// add adds what the manager runs as long as the process.
func (p process) add(runnables ...manager.Runnable) error {
	for _, runnable := range runnables {
		if err := p.manager.Add(runnable); err != nil {
			return fmt.Errorf("adding to the manager: %w", err)
		}
	}
	return nil
}

// peers are the other live replicas.
func (p process) peers(ctx context.Context) (versionskew.Peers, error) {
	live, err := p.replicas.Live(ctx)
	if err != nil {
		return versionskew.Peers{}, err
	}
	return replicas.Peers(live, p.identity, p.version), nil
}

// liveCount is the number of live replicas, 0 while it is unknown.
func (p process) liveCount() int {
	live, err := p.replicas.Live(context.Background())
	if err != nil {
		return 0
	}
	return len(live)
}

func newManager(
	config *rest.Config, log logr.Logger, transform toolscache.TransformFunc, version versionskew.Version,
) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, admissionregistrationv1.AddToScheme, corev1.AddToScheme, certmanager.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("adding to the scheme: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client: %w", err)
	}
	newInformer, err := policies.NewInformerFunc(config, httpClient, scheme, version.Fields)
	if err != nil {
		return nil, err
	}
	ours := labels.SelectorFromSet(labels.Set{registration.LabelManagedBy: registration.ManagedBy})
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Logger:                 log,
		Metrics:                metricsserver.Options{BindAddress: "0"}, // see serveMetrics
		HealthProbeBindAddress: "0",                                     // see serveProbes
		Cache: cache.Options{
			// A read of an object that is not watched is a defect and must not start a watch.
			ReaderFailOnMissingInformer: true,
			NewInformer:                 newInformer,
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
