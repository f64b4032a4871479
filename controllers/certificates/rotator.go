package certificates

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/pki"
)

const (
	// stepTimeout bounds one step, so that a hanging connection does not stop
	// the Rotator.
	stepTimeout = 30 * time.Second

	// The rate of writes is limited in case another client keeps overwriting
	// a Secret.
	writeBurst    = 8
	writeInterval = 5 * time.Second
)

// Rotator creates and renews the CA and the serving certificate, and restores lost
// or damaged Secrets. Only the leader runs it. If two run, optimistic locking lets
// only one of two writes succeed.
type Rotator struct {
	client   kubernetes.Interface
	options  Options
	provider *Provider
	limiter  *rate.Limiter
	metrics  *rotatorMetrics

	// memory is the CA that this process last read or wrote. It survives a loss
	// of leadership.
	memory pki.Authority
	// published is the bundle in all configurations, and since when.
	published publication
	// waitReason is the last reported reason for waiting.
	waitReason string
	source     sourceState
}

// NewRotator returns a Rotator. It restores lost Secrets from what the Provider of
// the same process serves.
func NewRotator(client kubernetes.Interface, provider *Provider, o Options) *Rotator {
	return &Rotator{
		client:   client,
		options:  o.withDefaults(),
		provider: provider,
		limiter:  rate.NewLimiter(rate.Every(writeInterval), writeBurst),
		metrics:  newRotatorMetrics(),
	}
}

// Run maintains the Secrets until ctx ends. It retries errors of the API server
// with back-off and returns an error only for invalid options. It may be called
// again after it has returned.
func (k *Rotator) Run(ctx context.Context) error {
	if err := k.options.validate(); err != nil {
		return err
	}
	unregister, err := k.metrics.register(k.options.Registerer)
	if err != nil {
		return err
	}
	defer unregister() // the next leader reports
	ctx, cancel := context.WithCancel(secrets.WithoutLogs(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	wake := events.Merge(ctx, k.options.Changes...)
	for _, name := range k.options.watched() {
		group.Go(func() { k.options.watchSecret(k.client, name, wake.Send).Run(ctx) })
	}
	k.published = publication{} // unknown since this replica last led
	k.loop(ctx, wake)
	k.source.block("") // the next leader reports it
	return nil
}

func (k *Rotator) loop(ctx context.Context, wake <-chan struct{}) {
	backoff := newBackoff()
	for ctx.Err() == nil {
		action, err := k.step(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.report(err)
			sleep(ctx, backoff.Step())
		case action.Kind == pki.Wait:
			backoff = newBackoff()
			k.sleepUntilNext(ctx, wake, action.At.Sub(k.options.clocks().Now()))
		}
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 15 * time.Second}
}

// sleep waits in real time, even if the certificates use another clock, to limit
// the load on the API server.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// sleepUntilNext waits until a Secret changes, d passes, or the clock has to be
// checked again.
func (k *Rotator) sleepUntilNext(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := k.options.Clock.NewTimer(min(d, maxSleep))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C():
	}
}

// report logs why a step failed. A conflict is expected: the next step reads the
// Secret again.
func (k *Rotator) report(err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		k.options.Log.V(1).Info("a Secret has changed concurrently, reading it again", "error", err.Error())
		return
	}
	k.options.Log.Error(err, "maintaining the certificates failed, retrying")
}

// step performs at most one write and returns the action.
func (k *Rotator) step(ctx context.Context) (pki.Action, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	found, err := k.fetch(ctx)
	if err != nil {
		return pki.Action{}, err
	}
	seen, err := k.observe(ctx, found)
	if err != nil {
		return pki.Action{}, err
	}
	o := k.options
	action := pki.Next(found.state, seen, o.ServerNames, o.Lifetimes)
	k.metrics.observed(found.state, seen)
	hasProblem := k.checkExternal(found, seen)
	if action.Kind == pki.Wait {
		k.reportWaiting(found, action)
		if soon := seen.Clocks.Now().Add(sourceInterval); hasProblem && action.At.After(soon) {
			action.At = soon
		}
		return action, nil
	}
	if found.damages != nil {
		o.Log.Error(found.damages, "a Secret has invalid content, replacing it", "namespace", o.Namespace)
	}
	state, err := pki.Apply(found.state, action, seen, o.ServerNames, o.Lifetimes, rand.Reader)
	if err != nil {
		return action, err
	}
	if err := k.limiter.Wait(ctx); err != nil {
		return action, fmt.Errorf("waiting for the write rate limit: %w", err)
	}
	return action, k.store(ctx, found, action, state)
}

// observedSecrets is the content of the Secrets.
type observedSecrets struct {
	ca, serving *corev1.Secret // nil: does not exist
	state       pki.State
	damages     error                    // invalid fields
	external    *pki.ExternalCertificate // nil: Ostiary issues its own
	problem     *sourceError             // why the issuer does not issue; nil if it does
}

func (k *Rotator) fetch(ctx context.Context) (observedSecrets, error) {
	var f observedSecrets
	var err error
	if f.ca, err = k.get(ctx, caName); err != nil {
		return observedSecrets{}, err
	}
	if f.serving, err = k.get(ctx, servingName); err != nil {
		return observedSecrets{}, err
	}
	if f.external, f.problem, err = k.readExternal(ctx); err != nil {
		return observedSecrets{}, err
	}
	var caErr, servingErr error
	if f.state.CA, caErr = readAuthority(f.ca); caErr != nil {
		caErr = fmt.Errorf("reading Secret %s: %w", caName, caErr)
	}
	if f.state.Serving, servingErr = readStored(f.serving); servingErr != nil {
		servingErr = fmt.Errorf("reading Secret %s: %w", servingName, servingErr)
	}
	f.damages = errors.Join(caErr, servingErr)
	return f, nil
}

func (k *Rotator) secrets() corev1client.SecretInterface {
	return k.client.CoreV1().Secrets(k.options.Namespace)
}

func (k *Rotator) get(ctx context.Context, name string) (*corev1.Secret, error) {
	s, err := secrets.Get(ctx, k.secrets(), name)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", k.options.Namespace, name, err)
	}
	return s, nil
}

// store writes the Secret that the action changes. A new CA is stored before it
// signs: its leaf is the next step.
func (k *Rotator) store(ctx context.Context, f observedSecrets, action pki.Action, state pki.State) error {
	var data map[string][]byte
	var err error
	name, old, pair := servingName, f.serving, state.Serving.Pair
	if action.Kind.OfCA() {
		name, old, pair = caName, f.ca, state.CA.Pair
		data, err = authorityData(state.CA)
	} else {
		data, err = servingData(state.Serving)
	}
	if err != nil {
		return err
	}
	written, err := secrets.Write(ctx, k.secrets(), name, old, data)
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", k.options.Namespace, name, err)
	}
	if action.Kind.OfCA() {
		k.memory = state.CA
	}
	k.recordAction(written, action, state)
	k.options.Log.Info("certificates written",
		"namespace", k.options.Namespace, "secret", name, "action", action.Kind, "reason", action.Reason,
		"certificate", pair.String(), "epoch", state.CA.Epoch, "phase", state.Phase())
	return nil
}
