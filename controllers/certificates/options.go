package certificates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/internal/pki"
)

// The names of the Secrets. Ostiary's role grants access to them by name.
const (
	defaultCAName      = "ostiary-ca"
	defaultServingName = "ostiary-serving"
)

// maxSleep is the longest time between two checks of the clock. Timers stop while
// a machine is suspended, so a timer for the day of renewal could fire too late.
const maxSleep = time.Minute

// ServerNames are the names under which API servers call Ostiary.
type ServerNames = pki.Names

// SecretNames are the names of the Secrets.
type SecretNames struct {
	// CA contains the CA's certificate and key. Only the leader reads it.
	CA string
	// Serving contains the serving certificate, its key and the trust bundle.
	Serving string
}

// Options configures the Rotator and the Provider.
type Options struct {
	// Namespace is the namespace of the Secrets.
	Namespace string
	// SecretNames default to ostiary-ca and ostiary-serving.
	SecretNames SecretNames
	// ServerNames are the names of the certificate.
	ServerNames ServerNames
	// Lifetimes of the certificates; zero fields have defaults.
	Lifetimes pki.Config
	// Source is the external issuer; nil if Ostiary has its own CA.
	Source *Source
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Log gets a line for every change and every rejection.
	Log logr.Logger
	// Registerer registers the metrics; nil disables them.
	Registerer prometheus.Registerer
	// ServerTime returns the API server's time, or zero if it is unknown. It defaults
	// to the Clock's.
	ServerTime func() time.Time
	// Published returns the bundles and paths in the webhook configurations. nil
	// means that there are none.
	Published func(context.Context) (Published, error)
	// Replicas returns the replicas that API servers may call. nil means only this
	// one.
	Replicas func(context.Context) ([]pki.Replica, error)
	// LeaseReady returns an error until this replica has a Lease. Before a new
	// replica is ready, it reads the Secret again after that.
	LeaseReady func() error
	// Changes receive when the result of Published or Replicas may have changed.
	Changes []func(context.Context) <-chan struct{}
	// Events records the actions of the leader; nil disables events.
	Events events.EventRecorder
}

// Published summarizes the webhook configurations in the API server.
type Published struct {
	// Bundles are their distinct trust bundles in PEM.
	Bundles [][]byte
	// Paths are their distinct secret paths, "" for a configuration without.
	Paths []string
	// Epoch is the highest epoch in any of them.
	Epoch int64
}

func (o Options) withDefaults() Options {
	o.SecretNames.CA = cmp.Or(o.SecretNames.CA, defaultCAName)
	o.SecretNames.Serving = cmp.Or(o.SecretNames.Serving, defaultServingName)
	o.Lifetimes = o.Lifetimes.WithDefaults()
	o.Lifetimes.External = o.Source != nil
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.ServerTime == nil {
		o.ServerTime = o.Clock.Now
	}
	if o.Published == nil {
		o.Published = func(context.Context) (Published, error) { return Published{}, nil }
	}
	if o.LeaseReady == nil {
		o.LeaseReady = func() error { return nil }
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Namespace == "":
		return errors.New("maintaining certificates: the namespace of the Secrets is missing")
	case o.SecretNames.CA == o.SecretNames.Serving:
		return fmt.Errorf("maintaining certificates: the Secrets of the CA and of the serving certificate are both %q: use two names", o.SecretNames.CA)
	}
	if err := errors.Join(o.ServerNames.Validate(), o.Lifetimes.Validate()); err != nil {
		return fmt.Errorf("maintaining certificates: %w", err)
	}
	return o.validateSource()
}

// now returns the wall clock without its monotonic part, which omits the time
// during which the machine was suspended.
func (o Options) now() time.Time { return o.Clock.Now().Round(0) }

// clocks returns the local time and the API server's.
func (o Options) clocks() pki.Clocks {
	return pki.Clocks{Local: o.now(), Server: o.ServerTime().Round(0)}
}

// live returns the published bundles that are valid.
func (p Published) live() []pki.Bundle {
	var out []pki.Bundle
	for _, data := range p.Bundles {
		if b, err := pki.ParseBundle(data); err == nil {
			out = append(out, b)
		}
	}
	return out
}

// withoutLogs returns a context in which the client logs nothing. At a high
// verbosity it logs the bodies of requests, which contain keys.
func withoutLogs(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

func (o Options) watchSecret(ctx context.Context, group *wait.Group, client kubernetes.Interface, name string, wake chan<- struct{}) (cache.Store, error) {
	return WatchSecret(ctx, group, client, o.Namespace, name, o.Log, wake)
}

// WatchSecret watches one Secret until ctx ends and sends to wake, which must have
// a buffer of one, at every event. It returns the store with the Secret. Nothing
// logs the Secret's content.
func WatchSecret(ctx context.Context, group *wait.Group, client kubernetes.Interface, namespace, name string, log logr.Logger, wake chan<- struct{}) (cache.Store, error) {
	informer, err := InformSecret(ctx, group, client, namespace, name, log, wake, func(error) {})
	if err != nil {
		return nil, err
	}
	return informer.GetStore(), nil
}

// InformSecret is WatchSecret for callers that have to know whether the Secret has been
// read, and why not: it calls failed with each error of the API server.
func InformSecret(ctx context.Context, group *wait.Group, client kubernetes.Interface, namespace, name string, log logr.Logger, wake chan<- struct{}, failed func(error)) (cache.SharedIndexInformer, error) {
	informer := coreinformers.NewFilteredSecretInformer(client, namespace, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	})
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Error(err, "watching the Secret failed, retrying", "namespace", namespace, "secret", name)
		failed(err)
	}); err != nil {
		return nil, fmt.Errorf("watching Secret %s/%s: %w", namespace, name, err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify(wake) },
		UpdateFunc: func(any, any) { notify(wake) },
		DeleteFunc: func(any) { notify(wake) },
	}); err != nil {
		return nil, fmt.Errorf("watching Secret %s/%s: %w", namespace, name, err)
	}
	group.StartWithContext(withoutLogs(ctx), informer.RunWithContext)
	return informer, nil
}

// notify sends to a channel with a buffer of one, unless it is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
