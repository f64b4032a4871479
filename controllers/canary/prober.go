package canary

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// The intervals between two probes: while all API servers reach Ostiary, while
	// one does not, and while one may not have received the configuration yet.
	healthyInterval, unhealthyInterval, pendingInterval = 30 * time.Second, 3 * time.Second, 250 * time.Millisecond
	// requestTimeout is longer than the webhook's own, which the API server reports.
	requestTimeout = 8 * time.Second
	// failureThreshold is the number of consecutive failures after which a proven
	// phase is reported as failed; notFoundThreshold is that of requests for which
	// the API server does not call the canary. Each report may write the status of
	// thousands of policies.
	failureThreshold, notFoundThreshold = 3, 20
)

// Options configure a Prober.
type Options struct {
	Client    client.Reader // reads from the manager's cache
	Config    *rest.Config
	Namespace string
	// Bundle returns the current trust bundle, nil if there is none.
	Bundle func() []byte
	// BundleChanged receives after each change of the bundle.
	BundleChanged <-chan struct{}
	Events        clientevents.EventRecorder
	Log           logr.Logger
	Registerer    prometheus.Registerer
}

// Prober sends canary requests to API servers and records the results.
type Prober struct {
	options     Options
	gauge       *prometheus.GaugeVec
	broadcaster events.Broadcaster

	mu      sync.Mutex
	phases  map[registration.Phase]*phaseState
	clients map[string]kubernetes.Interface // by address
}

// phaseState is the result for one phase.
type phaseState struct {
	verdict  Verdict
	bundle   []byte // used for the last success
	failures int    // consecutive
}

func phases() []registration.Phase {
	return []registration.Phase{registration.PhaseMutate, registration.PhaseValidate}
}

// NewProber returns a Prober without results, and registers its metric.
func NewProber(o Options) *Prober {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_webhook_reachable",
		Help: "1 if an API server reaches Ostiary, 0 if it does not, by phase and address. The address is empty if the addresses of API servers are unknown. Absent if no request reaches the API server. Reported by the leader.",
	}, []string{"phase", "address"})
	o.Registerer.MustRegister(gauge)
	p := &Prober{options: o, gauge: gauge}
	p.reset()
	return p
}

func (p *Prober) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phases, p.clients = map[registration.Phase]*phaseState{}, map[string]kubernetes.Interface{}
	for _, phase := range phases() {
		p.phases[phase] = &phaseState{verdict: notProbed()}
	}
}

// Verdict returns the result for a phase.
func (p *Prober) Verdict(phase registration.Phase) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phases[phase].verdict
}

// Proven reports whether API servers reach Ostiary with the current trust bundle.
func (p *Prober) Proven(phase registration.Phase) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.phases[phase]
	return f.verdict.Status == metav1.ConditionTrue && bytes.Equal(f.bundle, p.options.Bundle())
}

// Subscribe returns a channel that receives after each change, until ctx ends.
func (p *Prober) Subscribe(ctx context.Context) <-chan struct{} { return p.broadcaster.Subscribe(ctx) }

// Run probes until ctx ends, for one term of leadership.
func (p *Prober) Run(ctx context.Context) error {
	p.reset()
	defer p.gauge.Reset()
	list, err := watchAddresses(ctx, p.options.Config, p.options.Log)
	if err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.options.BundleChanged:
		case <-list.changed:
		case <-timer.C:
		}
		timer.Reset(p.probeAll(ctx, list.addresses()))
	}
}

// isRegistered reports whether the canary configurations have the bundle. The
// controller of the configurations writes them.
func (p *Prober) isRegistered(ctx context.Context, bundle []byte) bool {
	var observed []registration.Configuration
	for _, phase := range phases() {
		config := registration.NewConfiguration(phase)
		if err := p.options.Client.Get(ctx, client.ObjectKey{Name: phase.CanaryConfiguration()}, config); err != nil {
			return false // not in the cache
		}
		observed = append(observed, config)
	}
	bundles := registration.ObservedBundles(observed)
	return !slices.ContainsFunc(phases(), func(phase registration.Phase) bool {
		return !bytes.Equal(bundles[phase.CanaryWebhook()], bundle)
	})
}

// probeAll sends a canary of each phase to each API server, and returns the time
// until the next probe. It waits for canary configurations with the current bundle.
func (p *Prober) probeAll(ctx context.Context, addresses []string) time.Duration {
	bundle := p.options.Bundle()
	if len(bundle) == 0 || !p.isRegistered(ctx, bundle) {
		return pendingInterval
	}
	next, found := healthyInterval, map[registration.Phase][]result{}
	for _, phase := range phases() {
		results := p.sendAll(ctx, phase, addresses)
		if ctx.Err() != nil {
			return healthyInterval
		}
		found[phase] = results
		next = min(next, p.record(phase, combine(results), bundle))
	}
	p.updateGauge(found)
	return next
}

func (p *Prober) updateGauge(found map[registration.Phase][]result) {
	p.gauge.Reset()
	for phase, results := range found {
		for _, a := range results {
			switch a.verdict.Status {
			case metav1.ConditionTrue:
				p.gauge.WithLabelValues(string(phase), a.address).Set(1)
			case metav1.ConditionFalse:
				p.gauge.WithLabelValues(string(phase), a.address).Set(0)
			}
		}
	}
}

// sendAll sends a canary to every API server. If the result is unknown for all of
// them, it sends one to the address in the replica's own configuration.
func (p *Prober) sendAll(ctx context.Context, phase registration.Phase, addresses []string) []result {
	results := make([]result, len(addresses))
	var group sync.WaitGroup
	for i, address := range addresses {
		group.Go(func() { results[i] = result{address, p.send(ctx, phase, address)} })
	}
	group.Wait()
	if s := combine(results).Status; s == metav1.ConditionUnknown {
		results = []result{{"", p.send(ctx, phase, "")}}
	}
	return results
}

func (p *Prober) send(ctx context.Context, phase registration.Phase, address string) Verdict {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	apiServer, err := p.clientFor(address)
	if err != nil {
		return verdictOf(phase, "", err)
	}
	nonce := string(uuid.NewUUID())
	_, err = apiServer.CoreV1().ConfigMaps(p.options.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:        phase.CanaryConfiguration(),
		Labels:      map[string]string{registration.CanaryLabel: string(phase)},
		Annotations: map[string]string{registration.CanaryNonce: nonce},
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return verdictOf(phase, nonce, err)
}

// clientFor returns a client for the API server at an address.
func (p *Prober) clientFor(address string) (kubernetes.Interface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[address]; c != nil {
		return c, nil
	}
	c, err := kubernetes.NewForConfig(configFor(p.options.Config, address))
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", address, err)
	}
	if len(p.clients) > maxAddresses {
		clear(p.clients)
	}
	p.clients[address] = c
	return c, nil
}

// record adds a verdict to the state, and returns the time until the next probe.
func (p *Prober) record(phase registration.Phase, v Verdict, bundle []byte) time.Duration {
	p.mu.Lock()
	f := p.phases[phase]
	before, next := *f, healthyInterval
	if v.Status == metav1.ConditionTrue {
		f.failures, f.bundle = 0, bundle
	} else {
		f.failures++
		next = unhealthyInterval
		if v.Reason == ReasonNotCalled && f.failures < notFoundThreshold {
			next = pendingInterval
		}
	}
	threshold := failureThreshold
	switch {
	case v.Reason == ReasonNotCalled:
		threshold = notFoundThreshold
	case before.verdict.Status != metav1.ConditionTrue:
		threshold = 1
	}
	if v.Status == metav1.ConditionTrue || f.failures >= threshold {
		if !v.sameReason(f.verdict) {
			f.verdict = v
		}
	}
	after := *f
	p.mu.Unlock()
	if !after.verdict.sameReason(before.verdict) || !bytes.Equal(after.bundle, before.bundle) {
		p.broadcaster.Notify()
	}
	if !after.verdict.sameReason(before.verdict) {
		p.recordEvent(phase, before.verdict, after.verdict)
	}
	return next
}

// recordEvent writes an event, except for the first success of a term: it is no
// change if only the leader has changed.
func (p *Prober) recordEvent(phase registration.Phase, before, v Verdict) {
	p.options.Log.Info("reachability has changed", "phase", phase, "status", v.Status, "reason", v.Reason, "message", v.Message)
	if before.Reason == ReasonPending && v.Status == metav1.ConditionTrue {
		return
	}
	kind := corev1.EventTypeWarning
	if v.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	config := registration.NewConfiguration(phase)
	config.SetName(phase.CanaryConfiguration())
	p.options.Events.Eventf(config, nil, kind, v.Reason, "Prove", "%s", truncate.String(v.Message, truncate.EventMessage))
}
