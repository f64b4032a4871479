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

// The names of the Secrets. Ostiary's role grants access to these by name.
const (
	defaultCAName      = "ostiary-ca"
	defaultServingName = "ostiary-serving"
)

// maxSleep is the longest time between two looks at the clock. Timers stand
// still while a machine is suspended, so a timer set for the day of renewal
// would ring too late.
const maxSleep = time.Minute

// ServerNames are the names under which API servers call Ostiary.
type ServerNames = pki.Names

// SecretNames are the names of the Secrets.
type SecretNames struct {
	// CA holds the CA's certificate and key and is read by the leader only.
	CA string
	// Serving holds the leaf, its key and the trust bundle.
	Serving string
}

// Options say what to keep and where.
type Options struct {
	// Namespace is the one of the Secrets.
	Namespace string
	// SecretNames default to ostiary-ca and ostiary-serving.
	SecretNames SecretNames
	// ServerNames are what the certificate is for.
	ServerNames ServerNames
	// Lifetimes say how long certificates live; zero fields have defaults.
	Lifetimes pki.Config
	// Source is where the leaf comes from; nil means that Ostiary has a CA of its
	// own.
	Source *Source
	// Clock is the real one by default.
	Clock clock.WithTicker
	// Log gets a line for every change and every refusal.
	Log logr.Logger
	// Registerer gets the metrics; nil means no metrics.
	Registerer prometheus.Registerer
	// ServerTime is the API server's opinion of the time; zero is unknown. By
	// default it is the Clock's.
	ServerTime func() time.Time
	// Published tells what the configurations in the API server say. Without
	// it there are none.
	Published func(context.Context) (Published, error)
	// Replicas tells who may be called. Without it the leader is alone.
	Replicas func(context.Context) ([]pki.Replica, error)
	// LeaseReady is an error until the others know of this replica. A replica
	// that they do not know yet reads the Secret once more before it is ready.
	LeaseReady func() error
	// Changes receive when Published or Replicas may say something new.
	Changes []func(context.Context) <-chan struct{}
	// Events is told what the leader does; nil means nobody.
	Events events.EventRecorder
}

// Published is what the configurations in the API server say.
type Published struct {
	// Bundles are the trust bundles in them, each once, in PEM.
	Bundles [][]byte
	// Paths are the secret paths in them, each once; one without has the empty path.
	Paths []string
	// Epoch is the highest that any of them names.
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
		return errors.New("keeping certificates: give the namespace of the Secrets")
	case o.SecretNames.CA == o.SecretNames.Serving:
		return fmt.Errorf("keeping certificates: the Secrets of the CA and of the serving certificate are both %q: give them two names", o.SecretNames.CA)
	}
	if err := errors.Join(o.ServerNames.Validate(), o.Lifetimes.Validate()); err != nil {
		return fmt.Errorf("keeping certificates: %w", err)
	}
	return o.validateSource()
}

// now is the wall clock. Without the monotonic part, the time that passed
// while the machine was suspended counts.
func (o Options) now() time.Time { return o.Clock.Now().Round(0) }

// clocks are the opinions about the time.
func (o Options) clocks() pki.Clocks {
	return pki.Clocks{Local: o.now(), Server: o.ServerTime().Round(0)}
}

// live are the published bundles that can be read.
func (p Published) live() []pki.Bundle {
	var out []pki.Bundle
	for _, data := range p.Bundles {
		if b, err := pki.ParseBundle(data); err == nil {
			out = append(out, b)
		}
	}
	return out
}

// withoutLogs returns a context in which the client logs nothing. At a high verbosity
// it would log the bodies of requests and responses, which hold the keys.
func withoutLogs(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

func (o Options) watchSecret(ctx context.Context, group *wait.Group, client kubernetes.Interface, name string, wake chan<- struct{}) (cache.Store, error) {
	return WatchSecret(ctx, group, client, o.Namespace, name, o.Log, wake)
}

// WatchSecret watches the one Secret and pokes wake, which has room for one
// note, at every event, until ctx ends. It returns the store that holds the
// Secret while it exists. Nothing logs the Secret's content.
func WatchSecret(ctx context.Context, group *wait.Group, client kubernetes.Interface, namespace, name string, log logr.Logger, wake chan<- struct{}) (cache.Store, error) {
	informer := coreinformers.NewFilteredSecretInformer(client, namespace, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	})
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Error(err, "watching the Secret failed, trying again", "namespace", namespace, "secret", name)
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
	return informer.GetStore(), nil
}

// notify leaves a note on a channel with room for one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
