package canary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	// repairInterval is the least time between two repairs of a configuration.
	repairInterval = time.Second
)

// Options configure a Prober.
type Options struct {
	Client    client.Client // reads from the manager's cache
	Cache     cache.Cache
	Config    *rest.Config
	Namespace string
	Endpoint  registration.Endpoint
	// Owner returns the CustomResourceDefinition of policies, which owns the
	// canary configurations, so that they are deleted with it.
	Owner func(context.Context) (metav1.OwnerReference, error)
	// Bundle returns the current trust bundle, nil if there is none.
	Bundle func() []byte
	// Epoch returns the epoch of the bundle.
	Epoch func() int64
	// Capability returns the secret first segment of webhook paths.
	Capability func() string
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
		p.phases[phase] = &phaseState{verdict: notProven()}
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
	edits, err := p.watchConfigurations(ctx)
	if err != nil {
		return err
	}
	timer, repair := time.NewTimer(0), time.NewTimer(healthyInterval)
	defer timer.Stop()
	defer repair.Stop()
	var repaired time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-edits:
			repair.Reset(time.Until(repaired.Add(repairInterval))) // limits the rate if another client keeps editing
			continue
		case <-repair.C:
			repaired = time.Now()
			p.applyConfigurations(ctx)
			continue
		case <-p.options.BundleChanged:
		case <-list.changed:
		case <-timer.C:
		}
		timer.Reset(p.probeAll(ctx, list.addresses()))
	}
}

// watchConfigurations returns a channel that receives after each change of a
// canary configuration, until ctx ends.
func (p *Prober) watchConfigurations(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	for _, phase := range phases() {
		source := events.InformerSource(p.options.Cache, registration.NewConfiguration(phase), func(_ events.Queue, obj client.Object) {
			if obj.GetName() != phase.CanaryConfiguration() {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err := source.Start(ctx, nil); err != nil {
			return nil, fmt.Errorf("watching the canaries' configurations: %w", err)
		}
	}
	return changed, nil
}

// applyConfigurations applies the canary configurations that differ. It returns
// the bundle in them. ok is false after an error or without a bundle.
func (p *Prober) applyConfigurations(ctx context.Context) (bundle []byte, ok bool) {
	epoch := p.options.Epoch() // first, so that it is not newer than the bundle
	if bundle = p.options.Bundle(); len(bundle) == 0 {
		return nil, false
	}
	for _, phase := range phases() {
		if err := p.applyConfiguration(ctx, phase, bundle, epoch); err != nil {
			if ctx.Err() == nil && !errors.Is(err, errNamespaceDeleting) {
				p.options.Log.Error(err, "cannot apply the canary configuration, trying again")
			}
			return bundle, false
		}
	}
	return bundle, true
}

// probeAll sends a canary of each phase to each API server, and returns the time
// until the next probe.
func (p *Prober) probeAll(ctx context.Context, addresses []string) time.Duration {
	bundle, ok := p.applyConfigurations(ctx)
	switch {
	case len(bundle) == 0:
		return pendingInterval
	case !ok:
		return unhealthyInterval
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

// errNamespaceDeleting prevents writes while Ostiary's namespace is being deleted:
// no replica might be left to delete a new configuration.
var errNamespaceDeleting = errors.New("the namespace of Ostiary is being deleted")

// applyConfiguration applies the configuration of a phase's canary if it differs.
func (p *Prober) applyConfiguration(ctx context.Context, phase registration.Phase, bundle []byte, epoch int64) error {
	namespace := &corev1.Namespace{}
	if err := p.options.Client.Get(ctx, client.ObjectKey{Name: p.options.Namespace}, namespace); err != nil {
		return fmt.Errorf("getting namespace %s: %w", p.options.Namespace, err)
	}
	if namespace.DeletionTimestamp != nil {
		return errNamespaceDeleting
	}
	want, have := registration.Canary(phase, p.options.Endpoint, p.options.Capability(), bundle, epoch, p.options.Namespace), registration.NewConfiguration(phase)
	err := p.options.Client.Get(ctx, client.ObjectKey{Name: want.GetName()}, have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting configuration %s: %w", want.GetName(), err)
	}
	if err == nil && registration.Matches(have, want) {
		return nil
	}
	if err := registration.CheckEpoch(want, have); err != nil {
		return err
	}
	owner, err := p.options.Owner(ctx)
	if err != nil {
		return err
	}
	want.SetOwnerReferences([]metav1.OwnerReference{owner})
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("converting configuration %s: %w", want.GetName(), err)
	}
	u := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields})
	if err := p.options.Client.Apply(ctx, u, client.FieldOwner(registration.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying configuration %s: %w", want.GetName(), registration.ConcealError(err))
	}
	return nil
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
