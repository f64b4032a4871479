package certificates

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/internal/pki"
)

// Provider keeps the newest usable certificate and trust bundle of the serving
// Secret in memory. What it has once accepted it serves until something better
// comes: a Secret that is damaged or deleted changes nothing but the alarm.
type Provider struct {
	client    kubernetes.Interface
	options   Options
	metrics   *metrics
	current   atomic.Pointer[material]
	rejection atomic.Pointer[rejection]
	wake      chan struct{}
	// loaded is closed when there is a certificate, which handshakes wait for as
	// long as firstWait.
	loaded       chan struct{}
	load         sync.Once
	firstTimeout time.Duration
	// confirmed says that the Secret has been read since others know of this
	// replica: whatever they decide now, they wait for it.
	confirmed atomic.Bool

	mu          sync.Mutex
	state       pki.ServingState
	subscribers []chan struct{}
}

// material is what is served, ready for use. It is never changed.
type material struct {
	state  pki.ServingState
	tls    *tls.Certificate
	bundle []byte
}

// rejection is why the Secret, at this version of it, is not served.
type rejection struct {
	version string
	reason  pki.Reason
	err     error
}

var errNoSecret = errors.New("the Secret does not exist or has not been read yet")

// NewProvider returns a Watcher that knows nothing until Start.
func NewProvider(client kubernetes.Interface, o Options) *Provider {
	w := &Provider{client: client, options: o.withDefaults(), metrics: newMetrics(), wake: make(chan struct{}, 1), loaded: make(chan struct{}), firstTimeout: firstTimeout}
	w.rejection.Store(&rejection{reason: reasonOf(errNoSecret), err: errNoSecret})
	return w
}

// NeedLeaderElection says that every replica watches.
func (w *Provider) NeedLeaderElection() bool { return false }

// Start watches until ctx ends. It is called once.
func (w *Provider) Start(ctx context.Context) error {
	if err := w.options.validate(); err != nil {
		return err
	}
	if err := w.metrics.register(w.options.Registerer); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(withoutLogs(ctx))
	var group wait.Group
	defer group.Wait()
	defer cancel()
	store, err := w.options.watchSecret(ctx, &group, w.client, w.options.SecretNames.Serving, w.wake)
	if err != nil {
		return err
	}
	for {
		timer := w.options.Clock.NewTimer(w.pollInterval())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-w.wake:
		case <-timer.C():
		}
		timer.Stop()
		w.refresh(ctx, store)
	}
}

// pollInterval is how long there is nothing to do without an event: a certificate that
// is not yet valid becomes so, and a trial ends.
func (w *Provider) pollInterval() time.Duration {
	switch {
	case !w.confirmed.Load():
		return confirmInterval
	case w.currentState().OnTrial():
		return max(w.options.Lifetimes.Periods().Trial/4, confirmInterval)
	}
	return maxSleep
}

// confirmInterval is how often to look whether the others know of this replica.
const confirmInterval = 100 * time.Millisecond

func (w *Provider) refresh(ctx context.Context, store cache.Store) {
	if !w.confirmed.Load() && w.options.LeaseReady() == nil && w.confirm(ctx) {
		w.confirmed.Store(true)
	}
	obj, _, err := store.GetByKey(w.options.Namespace + "/" + w.options.SecretNames.Serving)
	secret, ok := obj.(*corev1.Secret)
	if err != nil || !ok {
		w.recordRejection("", errNoSecret)
		w.update(func(h pki.ServingState) pki.ServingState { return h })
		return
	}
	w.accept(ctx, secret)
}

// confirm reads the Secret past all caches. It reports whether that was
// possible.
func (w *Provider) confirm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	secret, err := w.client.CoreV1().Secrets(w.options.Namespace).Get(ctx, w.options.SecretNames.Serving, metav1.GetOptions{})
	if err == nil {
		w.accept(ctx, secret)
	}
	return err == nil || apierrors.IsNotFound(err)
}

// accept takes over what the Secret holds, as far as it may be served.
func (w *Provider) accept(ctx context.Context, secret *corev1.Secret) {
	stored, damage := readServing(secret)
	published, err := w.options.Published(ctx)
	if err != nil {
		published = Published{} // nothing is known to go by
	}
	var refused error
	w.update(func(h pki.ServingState) pki.ServingState {
		h, refused = h.Accept(stored, published.live(), w.options.ServerNames, w.options.clocks(), w.options.Clock.Now())
		return h
	})
	switch {
	case refused == nil:
		w.rejection.Store(nil)
	case damage != nil:
		w.recordRejection(secret.ResourceVersion, damage)
	default:
		w.recordRejection(secret.ResourceVersion, inField(chainField, refused))
	}
}

// update changes what is held, and tells everybody who is concerned.
func (w *Provider) update(change func(pki.ServingState) pki.ServingState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.state
	w.state = change(before).Tick(w.options.Clock.Now(), w.options.Lifetimes.Periods())
	w.metrics.skew.Set(w.options.clocks().Skew().Seconds())
	w.publish(w.state)
	if before.Committed() != w.state.Committed() {
		w.notify()
	}
}

// publish serves what is held. It is called with the lock.
func (w *Provider) publish(held pki.ServingState) {
	pair := held.Presented()
	if pair.IsZero() && len(held.Serving.Bundle.Roots()) == 0 {
		return
	}
	next := &material{state: held, tls: pair.TLS(), bundle: held.Serving.Bundle.PEM()}
	old := w.current.Swap(next)
	if !pair.IsZero() {
		w.load.Do(func() { close(w.loaded) })
	}
	if old != nil && bytes.Equal(old.bundle, next.bundle) && slices.Equal(old.state.Serving.Paths, held.Serving.Paths) && slices.EqualFunc(old.tls.Certificate, next.tls.Certificate, bytes.Equal) {
		return
	}
	w.metrics.served(held)
	w.options.Log.Info("serving", "certificate", pair.String(), "epoch", held.PresentedEpoch(), "trustEpoch", held.Serving.TrustEpoch)
	w.notify()
}

func (w *Provider) notify() {
	for _, s := range w.subscribers {
		notify(s)
	}
}

// recordRejection keeps what is served and raises the alarm, once for each version of
// the Secret.
func (w *Provider) recordRejection(version string, err error) {
	reason := reasonOf(err)
	last := w.rejection.Swap(&rejection{version: version, reason: reason, err: err})
	if last != nil && last.version == version && last.reason == reason {
		return
	}
	log := w.options.Log.WithValues("namespace", w.options.Namespace, "secret", w.options.SecretNames.Serving, "serving", w.currentState().Presented().String())
	if errors.Is(err, errNoSecret) {
		log.Info("the Secret is gone, keeping what is served")
		return
	}
	w.metrics.refused(reason)
	log.Error(err, "the Secret is not fit to be served, keeping what is served", "reason", reason)
}

func (w *Provider) currentState() pki.ServingState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// ReportDistrust is told that a client refused what is served. If that is the
// certificate of a new CA, the one before is served again for a while.
func (w *Provider) ReportDistrust() {
	if !w.currentState().OnTrial() {
		return
	}
	var fell bool
	w.update(func(h pki.ServingState) pki.ServingState {
		was := h.FallenBack()
		h = h.FallBack(w.options.Clock.Now())
		fell = !was && h.FallenBack()
		return h
	})
	if fell {
		w.metrics.fallbacks.Inc()
		w.options.Log.Info("a client does not trust the certificate of the new CA, serving the one before for a while", "serving", w.currentState().Presented().String())
		notify(w.wake) // so that the end of it is awaited
	}
}

// GetCertificate is for [tls.Config]. It only reads a pointer, once there is a
// certificate. Before that, callers wait for a while: a replica that was killed
// and is started again is called before anybody knows of either.
func (w *Provider) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	m := w.current.Load()
	if m == nil || len(m.tls.Certificate) == 0 {
		if m = w.waitForFirst(hello); m == nil {
			return nil, errors.New("no certificate has been loaded yet")
		}
	}
	return m.tls, nil
}

// firstTimeout is shorter than what the server gives a handshake.
const firstTimeout = 4 * time.Second

// waitForFirst waits for what is served first; nil if that takes too long.
func (w *Provider) waitForFirst(hello *tls.ClientHelloInfo) *material {
	ctx, cancel := context.WithTimeout(hello.Context(), w.firstTimeout)
	defer cancel()
	select {
	case <-w.loaded:
		return w.current.Load()
	case <-ctx.Done():
		return nil
	}
}

// Bundle returns the trust bundle in PEM: the roots under which what is served
// verifies. It is nil until there is one.
func (w *Provider) Bundle() []byte {
	m := w.current.Load()
	if m == nil {
		return nil
	}
	return bytes.Clone(m.bundle)
}

// Path is the secret first segment of the path that API servers are told to
// call; it is empty until there is one.
func (w *Provider) Path() string {
	m := w.current.Load()
	if m == nil {
		return ""
	}
	return m.state.Serving.Path()
}

// Accepts reports whether the path is one that API servers call. It does not
// wait, and how long it takes does not depend on the path.
func (w *Provider) Accepts(path string) bool {
	m := w.current.Load()
	return m != nil && m.state.Serving.Accepts(path)
}

// TrustEpoch is the epoch of the trust bundle; 0 until there is one.
func (w *Provider) TrustEpoch() int64 {
	m := w.current.Load()
	if m == nil {
		return 0
	}
	return m.state.Serving.TrustEpoch
}

// Committed is the lowest epoch that this replica may still serve; 0 until it
// serves anything.
func (w *Provider) Committed() int64 { return w.currentState().Committed() }

// Fingerprint is that of the leaf that is served: SHA-256, in hexadecimal.
func (w *Provider) Fingerprint() string {
	m := w.current.Load()
	if m == nil || m.tls.Leaf == nil {
		return ""
	}
	sum := sha256.Sum256(m.tls.Leaf.Raw)
	return hex.EncodeToString(sum[:])
}

// Subscribe returns a channel that receives after every change of the
// certificate or the bundle. Changes that follow each other quickly may arrive
// as one. The channel lives as long as the Watcher.
func (w *Provider) Subscribe() <-chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers = append(w.subscribers, c)
	return c
}

// Ready reports why API servers would not be served well: there is no
// certificate, it does not verify under what they were told to trust, or it is
// about to expire.
func (w *Provider) Ready() error {
	held := w.currentState()
	if held.Presented().IsZero() {
		reason := errNoSecret
		if r := w.rejection.Load(); r != nil {
			reason = r.err
		}
		return fmt.Errorf("no certificate from Secret %s/%s yet: %w", w.options.Namespace, w.options.SecretNames.Serving, reason)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	published, err := w.options.Published(ctx)
	if err != nil {
		return fmt.Errorf("looking at what API servers trust: %w", err)
	}
	if err := held.Check(published.live(), w.options.ServerNames, w.options.Lifetimes, w.options.clocks()); err != nil {
		return fmt.Errorf("the served certificate is of no use: %w", err)
	}
	if !w.confirmed.Load() {
		return errors.New("the serving Secret has not been read since the other replicas know of this one")
	}
	return nil
}

// readTimeout bounds a look at the caches, which wait until they are filled.
const readTimeout = time.Second
