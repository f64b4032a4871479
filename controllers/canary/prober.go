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
	// restful is the pause while all is well, unwell while it is not, and hasty
	// while API servers may not have seen the configuration yet.
	restful, unwell, hasty = 30 * time.Second, 3 * time.Second, 250 * time.Millisecond
	// askTimeout is longer than the webhook's own timeout, which the API server
	// shall tell of.
	askTimeout = 8 * time.Second
	// doubts is how many times in a row what was proven has to fail before it is
	// called so, and strangeness how many times an API server may not know the
	// configuration: ten thousand statuses are written for it.
	doubts, strangeness = 3, 20
	// mendPause is the least time between two repairs of a configuration.
	mendPause = time.Second
)

// Options say what to prove, and with what.
type Options struct {
	Client    client.Client // reads from the manager's cache
	Cache     cache.Cache
	Config    *rest.Config
	Namespace string
	Endpoint  registration.Endpoint
	// Owner is the definition of policies: canaries go with it, whether Ostiary
	// runs and may still delete them or not.
	Owner func(context.Context) (metav1.OwnerReference, error)
	// Bundle is the current trust bundle, nil while there is none.
	Bundle func() []byte
	// Epoch is that of the bundle.
	Epoch func() int64
	// Capability is the secret first segment of the paths that API servers call.
	Capability func() string
	// BundleChanged receives after each change of the bundle.
	BundleChanged <-chan struct{}
	Events        clientevents.EventRecorder
	Log           logr.Logger
	Registerer    prometheus.Registerer
}

// Prober sends canaries and knows what came of them.
type Prober struct {
	options   Options
	gauge     *prometheus.GaugeVec
	listeners events.Broadcaster

	mu     sync.Mutex
	phases map[registration.Phase]*finding
	asks   map[string]kubernetes.Interface // by address
}

// finding is what is known in one phase.
type finding struct {
	verdict Verdict
	bundle  []byte // with which it was proven
	fails   int    // in a row
}

func phases() []registration.Phase {
	return []registration.Phase{registration.PhaseMutate, registration.PhaseValidate}
}

// NewProber makes a Prober that has tried nothing, and its metric.
func NewProber(o Options) *Prober {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ostiary_effective",
		Help: "1 where an API server reaches Ostiary, 0 where it does not, by phase and address, which is empty where the addresses of API servers are not known; absent where it cannot be asked. Reported by the leader.",
	}, []string{"phase", "address"})
	o.Registerer.MustRegister(gauge)
	p := &Prober{options: o, gauge: gauge}
	p.reset()
	return p
}

func (p *Prober) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phases, p.asks = map[registration.Phase]*finding{}, map[string]kubernetes.Interface{}
	for _, phase := range phases() {
		p.phases[phase] = &finding{verdict: unproven()}
	}
}

// Verdict is what is known of a phase.
func (p *Prober) Verdict(phase registration.Phase) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phases[phase].verdict
}

// Proven reports whether API servers reach Ostiary, as far as is known, over the
// bundle that configurations are given now.
func (p *Prober) Proven(phase registration.Phase) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.phases[phase]
	return f.verdict.Status == metav1.ConditionTrue && bytes.Equal(f.bundle, p.options.Bundle())
}

// Subscribe gives a channel that receives after each change, until ctx ends.
func (p *Prober) Subscribe(ctx context.Context) <-chan struct{} { return p.listeners.Subscribe(ctx) }

// Run sends canaries until ctx ends, for one term of leadership.
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
	timer, mend := time.NewTimer(0), time.NewTimer(restful)
	defer timer.Stop()
	defer mend.Stop()
	var mended time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-edits:
			mend.Reset(time.Until(mended.Add(mendPause))) // of who keeps editing, nobody makes a hot loop
			continue
		case <-mend.C:
			mended = time.Now()
			p.registerAll(ctx)
			continue
		case <-p.options.BundleChanged:
		case <-list.changed:
		case <-timer.C:
		}
		timer.Reset(p.round(ctx, list.addresses()))
	}
}

// watchConfigurations gives a channel that receives after each change of a
// canary's configuration, until ctx ends.
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

// registerAll makes the configurations of all canaries as they should be. It
// gives the bundle that they have then, and is not ok where that failed or there
// is no bundle yet.
func (p *Prober) registerAll(ctx context.Context) (bundle []byte, ok bool) {
	epoch := p.options.Epoch() // first, so that it is never ahead of the bundle
	if bundle = p.options.Bundle(); len(bundle) == 0 {
		return nil, false
	}
	for _, phase := range phases() {
		if err := p.register(ctx, phase, bundle, epoch); err != nil {
			if ctx.Err() == nil && !errors.Is(err, errLeaving) {
				p.options.Log.Error(err, "cannot register the canary, trying again")
			}
			return bundle, false
		}
	}
	return bundle, true
}

// round sends a canary of each phase through each API server, and returns when
// to do so again.
func (p *Prober) round(ctx context.Context, addresses []string) time.Duration {
	bundle, ok := p.registerAll(ctx)
	switch {
	case len(bundle) == 0:
		return hasty
	case !ok:
		return unwell
	}
	next, found := restful, map[registration.Phase][]answer{}
	for _, phase := range phases() {
		answers := p.askAll(ctx, phase, addresses)
		if ctx.Err() != nil {
			return restful
		}
		found[phase] = answers
		next = min(next, p.find(phase, sum(answers), bundle))
	}
	p.measure(found)
	return next
}

func (p *Prober) measure(found map[registration.Phase][]answer) {
	p.gauge.Reset()
	for phase, answers := range found {
		for _, a := range answers {
			switch a.verdict.Status {
			case metav1.ConditionTrue:
				p.gauge.WithLabelValues(string(phase), a.address).Set(1)
			case metav1.ConditionFalse:
				p.gauge.WithLabelValues(string(phase), a.address).Set(0)
			}
		}
	}
}

// errLeaving is why nothing is registered while Ostiary goes: its namespace is
// being deleted, and what was made now might find nobody left to remove it.
var errLeaving = errors.New("the namespace of Ostiary is being deleted")

// register makes the configuration of a canary as it should be, if it is not.
func (p *Prober) register(ctx context.Context, phase registration.Phase, bundle []byte, epoch int64) error {
	namespace := &corev1.Namespace{}
	if err := p.options.Client.Get(ctx, client.ObjectKey{Name: p.options.Namespace}, namespace); err != nil {
		return fmt.Errorf("getting namespace %s: %w", p.options.Namespace, err)
	}
	if namespace.DeletionTimestamp != nil {
		return errLeaving
	}
	want, have := registration.Canary(phase, p.options.Endpoint, p.options.Capability(), bundle, epoch, p.options.Namespace), registration.NewConfiguration(phase)
	err := p.options.Client.Get(ctx, client.ObjectKey{Name: want.GetName()}, have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting configuration %s: %w", want.GetName(), err)
	}
	if err == nil && registration.Carries(have, want) {
		return nil
	}
	if err := registration.Behind(want, have); err != nil {
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

// askAll asks every API server; where none of them answers, the way that this
// replica itself takes to them.
func (p *Prober) askAll(ctx context.Context, phase registration.Phase, addresses []string) []answer {
	answers := make([]answer, len(addresses))
	var group sync.WaitGroup
	for i, address := range addresses {
		group.Go(func() { answers[i] = answer{address, p.ask(ctx, phase, address)} })
	}
	group.Wait()
	if s := sum(answers).Status; s == metav1.ConditionUnknown {
		answers = []answer{{"", p.ask(ctx, phase, "")}}
	}
	return answers
}

func (p *Prober) ask(ctx context.Context, phase registration.Phase, address string) Verdict {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	through, err := p.through(address)
	if err != nil {
		return judge(phase, "", err)
	}
	nonce := string(uuid.NewUUID())
	_, err = through.CoreV1().ConfigMaps(p.options.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:        phase.CanaryConfiguration(),
		Labels:      map[string]string{registration.CanaryLabel: string(phase)},
		Annotations: map[string]string{registration.CanaryNonce: nonce},
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return judge(phase, nonce, err)
}

// through is a client of the API server at an address.
func (p *Prober) through(address string) (kubernetes.Interface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.asks[address]; c != nil {
		return c, nil
	}
	c, err := kubernetes.NewForConfig(at(p.options.Config, address))
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", address, err)
	}
	if len(p.asks) > maxAddresses {
		clear(p.asks)
	}
	p.asks[address] = c
	return c, nil
}

// find takes a verdict into what is known, and returns when to look again.
func (p *Prober) find(phase registration.Phase, v Verdict, bundle []byte) time.Duration {
	p.mu.Lock()
	f := p.phases[phase]
	before, again := *f, restful
	if v.Status == metav1.ConditionTrue {
		f.fails, f.bundle = 0, bundle
	} else {
		f.fails++
		again = unwell
		if v.Reason == ReasonNotCalled && f.fails < strangeness {
			again = hasty
		}
	}
	wait := doubts
	switch {
	case v.Reason == ReasonNotCalled:
		wait = strangeness
	case before.verdict.Status != metav1.ConditionTrue:
		wait = 1
	}
	if v.Status == metav1.ConditionTrue || f.fails >= wait {
		if !v.same(f.verdict) {
			f.verdict = v
		}
	}
	after := *f
	p.mu.Unlock()
	if !after.verdict.same(before.verdict) || !bytes.Equal(after.bundle, before.bundle) {
		p.listeners.Notify()
	}
	if !after.verdict.same(before.verdict) {
		p.tell(phase, before.verdict, after.verdict)
	}
	return again
}

// tell writes an event, but not of a leader's first proof: as a rule it worked for
// the leader before too, and nothing is to be written because another leads.
func (p *Prober) tell(phase registration.Phase, before, v Verdict) {
	p.options.Log.Info("effective", "phase", phase, "status", v.Status, "reason", v.Reason, "message", v.Message)
	if before.Reason == ReasonNotProven && v.Status == metav1.ConditionTrue {
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
