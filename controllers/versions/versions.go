// Package versions finds the versions of the API servers, and provides the compiler whose
// programs behave like the native engine of the lowest one.
package versions

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// interval is the time between two reads of the version, and firstInterval that
	// until the first one succeeds.
	interval, firstInterval = 30 * time.Second, time.Second
	// memory is how long a version counts after it was last seen. Each read is a new
	// connection, which a load balancer may give to any API server.
	memory = 10 * time.Minute
	// timeout bounds one read.
	timeout = 5 * time.Second
)

// Detector reads the versions of the API servers from time to time. Nothing waits for
// it: until a version is known, it provides the compiler for the latest engine.
type Detector struct {
	read      func(ctx context.Context) (policy.Engine, error)
	now       func() time.Time
	log       logr.Logger
	listeners events.Broadcaster

	mu       sync.Mutex
	seen     map[policy.Engine]time.Time
	compiler *policy.Compiler
}

// New returns a detector that has read no version.
func New(config *rest.Config, log logr.Logger) (*Detector, error) {
	config = rest.CopyConfig(config)
	config.Timeout = timeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the version of API servers: %w", err)
	}
	known, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making a client for the version of API servers: %w", err)
	}
	return newDetector(func(context.Context) (policy.Engine, error) { return readVersion(known, client) }, time.Now, log), nil
}

func newDetector(read func(context.Context) (policy.Engine, error), now func() time.Time, log logr.Logger) *Detector {
	return &Detector{read: read, now: now, log: log, seen: map[policy.Engine]time.Time{}, compiler: policy.NewCompiler()}
}

func readVersion(known discovery.ServerVersionInterface, client *http.Client) (policy.Engine, error) {
	defer client.CloseIdleConnections() // the next read may reach another API server
	info, err := known.ServerVersion()
	if err != nil {
		return 0, fmt.Errorf("reading the version of the API server: %w", err)
	}
	return celengine.EngineOf(info.Major, info.Minor)
}

// Compiler is the compiler for the lowest version. It is another one after a change.
func (d *Detector) Compiler() *policy.Compiler {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler
}

// Engine is the engine of the lowest version.
func (d *Detector) Engine() policy.Engine { return d.Compiler().Engine() }

// Subscribe gives a channel that receives after each change, until ctx ends.
func (d *Detector) Subscribe(ctx context.Context) <-chan struct{} { return d.listeners.Subscribe(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers requests.
func (d *Detector) NeedLeaderElection() bool { return false }

// Start reads the version until ctx ends.
func (d *Detector) Start(ctx context.Context) error {
	for {
		pause := interval
		if !d.Check(ctx) {
			pause = firstInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// Check reads the version once, and reports whether any is known.
func (d *Detector) Check(ctx context.Context) bool {
	engine, err := d.read(ctx)
	if err != nil {
		d.log.V(1).Info("the version of the API server is unknown", "error", err.Error())
		return d.known()
	}
	if d.record(engine) {
		d.log.Info("answering like the native engine of this version of Kubernetes", "version", d.Engine().String())
		d.listeners.Notify()
	}
	return true
}

func (d *Detector) known() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen) > 0
}

// record stores a version that was read, and reports whether the lowest one has changed.
func (d *Detector) record(engine policy.Engine) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.seen[engine] = now
	lowest := engine
	for e, last := range d.seen {
		switch {
		case now.Sub(last) > memory:
			delete(d.seen, e)
		case e < lowest:
			lowest = e
		}
	}
	if lowest == d.compiler.Engine() {
		return false
	}
	d.compiler = policy.NewCompilerFor(lowest)
	return true
}
