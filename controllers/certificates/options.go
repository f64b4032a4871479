package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/pki"
)

// The names of the Secrets. Ostiary's role grants access to them by name.
const (
	// caName contains the CA's certificate and key. Only the leader reads it.
	caName = "ostiary-ca"
	// servingName contains the serving certificate, its key and the trust bundle.
	servingName = "ostiary-serving"
)

// maxSleep is the longest time between two checks of the clock. Timers stop while
// a machine is suspended, so a timer for the day of renewal could fire too late.
const maxSleep = time.Minute

// ServerNames are the names under which API servers call Ostiary.
type ServerNames = pki.Names

// Options configures the Rotator and the Provider.
type Options struct {
	// Namespace is the namespace of the Secrets.
	Namespace string
	// ServerNames are the names of the certificate.
	ServerNames ServerNames
	// Lifetimes of the certificates; zero fields have defaults.
	Lifetimes pki.Config
	// Source is the external issuer; nil if Ostiary has its own CA.
	Source *Source
	Clock  clock.WithTicker
	// Log gets a line for every change and every rejection.
	Log logr.Logger
	// Registerer registers the metrics.
	Registerer prometheus.Registerer
	// ServerTime returns the API server's time, or zero if it is unknown.
	ServerTime func() time.Time
	// Published returns the bundles and paths in the webhook configurations.
	Published func(context.Context) (Published, error)
	// Replicas returns the replicas that API servers may call.
	Replicas func(context.Context) ([]pki.Replica, error)
	// LeaseReady returns an error until this replica has a Lease. Before a new
	// replica is ready, it reads the Secret again after that.
	LeaseReady func() error
	// Changes receive when the result of Published or Replicas may have changed.
	Changes []func(context.Context) <-chan struct{}
	// Events records the actions of the leader.
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
	o.Lifetimes = o.Lifetimes.WithDefaults()
	o.Lifetimes.External = o.Source != nil
	return o
}

func (o Options) validate() error {
	if o.Namespace == "" {
		return errors.New("maintaining certificates: the namespace of the Secrets is missing")
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

func (o Options) watchSecret(client kubernetes.Interface, name string, changed func()) *secrets.Watch {
	return secrets.NewWatch(client, secrets.Object{Kind: secrets.KindSecret, Namespace: o.Namespace, Name: name}, o.Log, changed)
}
