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
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/pki"
)

// Provider serves the newest valid certificate and trust bundle of the serving
// Secret from memory. If the Secret is damaged or deleted, the Provider reports it
// and keeps what it serves.
type Provider struct {
	client    kubernetes.Interface
	options   Options
	metrics   *metrics
	current   atomic.Pointer[material]
	rejection atomic.Pointer[rejection]
	wake      events.Signal
	changes   events.Broadcaster
	// loaded is closed when there is a certificate. Handshakes wait for it up to
	// firstTimeout.
	loaded       chan struct{}
	load         sync.Once
	firstTimeout time.Duration
	// confirmed means that the Secret has been read since this replica's Lease
	// exists: from then on, rotations wait for this replica.
	confirmed  atomic.Bool
	distrusted atomic.Uint64

	mu    sync.Mutex
	state pki.ServingState
}

// material is what is served. It is immutable.
type material struct {
	state  pki.ServingState
	tls    *tls.Certificate
	bundle []byte
}

// rejection is why a version of the Secret is not served.
type rejection struct {
	version string
	reason  pki.Reason
	err     error
}

var errNoSecret = errors.New("the Secret does not exist or has not been read yet")

// NewProvider returns a Provider that has no certificate until Start.
func NewProvider(client kubernetes.Interface, o Options) *Provider {
	w := &Provider{
		client:       client,
		options:      o.withDefaults(),
		metrics:      newMetrics(),
		wake:         events.NewSignal(),
		loaded:       make(chan struct{}),
		firstTimeout: firstTimeout,
	}
	w.rejection.Store(&rejection{reason: reasonOf(errNoSecret), err: errNoSecret})
	return w
}

// NeedLeaderElection returns false: every replica runs the Provider.
func (w *Provider) NeedLeaderElection() bool { return false }

// Start watches the Secret until ctx ends. Call it once.
func (w *Provider) Start(ctx context.Context) error {
	if err := w.options.validate(); err != nil {
		return err
	}
	if err := w.metrics.register(w.options.Registerer); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(secrets.WithoutLogs(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	watch := w.options.watchSecret(w.client, servingName, w.wake.Send)
	group.Go(func() { watch.Run(ctx) })
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
		w.refresh(ctx, watch)
	}
}

// pollInterval is the time until the next check without an event: a certificate
// becomes valid, or a trial ends.
func (w *Provider) pollInterval() time.Duration {
	switch {
	case !w.confirmed.Load():
		return confirmInterval
	case w.currentState().OnTrial():
		return max(w.options.Lifetimes.Periods().Trial/4, confirmInterval)
	}
	return maxSleep
}

// confirmInterval is how often to check whether this replica's Lease exists.
const confirmInterval = 100 * time.Millisecond

func (w *Provider) refresh(ctx context.Context, watch *secrets.Watch) {
	if !w.confirmed.Load() && w.options.LeaseReady() == nil && w.confirm(ctx) {
		w.confirmed.Store(true)
	}
	secret := watch.Secret()
	if secret == nil {
		w.recordRejection("", errNoSecret)
		w.update(func(h pki.ServingState) pki.ServingState { return h })
		return
	}
	w.accept(ctx, secret)
}

// confirm reads the Secret without a cache and reports whether that succeeded.
func (w *Provider) confirm(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	secret, err := w.client.CoreV1().Secrets(w.options.Namespace).Get(ctx, servingName, metav1.GetOptions{})
	if err == nil {
		w.accept(ctx, secret)
	}
	return err == nil || apierrors.IsNotFound(err)
}

// accept takes over the valid parts of the Secret.
func (w *Provider) accept(ctx context.Context, secret *corev1.Secret) {
	stored, damage := readServing(secret)
	published, err := w.options.Published(ctx)
	if err != nil {
		published = Published{} // unknown
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

// update changes the state and notifies the subscribers.
func (w *Provider) update(change func(pki.ServingState) pki.ServingState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.state
	w.state = change(before).Tick(w.options.Clock.Now(), w.options.Lifetimes.Periods())
	w.metrics.skew.Set(w.options.clocks().Skew().Seconds())
	w.publish(w.state)
	if before.Committed() != w.state.Committed() {
		w.changes.Notify()
	}
}

// publish serves the state. The caller holds the lock.
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
	if old != nil && bytes.Equal(old.bundle, next.bundle) && slices.Equal(old.state.Serving.Paths, held.Serving.Paths) &&
		slices.EqualFunc(old.tls.Certificate, next.tls.Certificate, bytes.Equal) {
		return
	}
	w.metrics.served(held)
	w.options.Log.Info("serving", "certificate", pair.String(), "epoch", held.PresentedEpoch(), "trustEpoch", held.Serving.TrustEpoch)
	w.changes.Notify()
}

// recordRejection reports a rejected Secret, once per version. The Provider keeps
// what it serves.
func (w *Provider) recordRejection(version string, err error) {
	reason := reasonOf(err)
	last := w.rejection.Swap(&rejection{version: version, reason: reason, err: err})
	if last != nil && last.version == version && last.reason == reason {
		return
	}
	log := w.options.Log.WithValues("namespace", w.options.Namespace, "secret", servingName, "serving", w.currentState().Presented().String())
	if errors.Is(err, errNoSecret) {
		log.Info("the Secret does not exist, keeping the served certificate")
		return
	}
	w.metrics.refused(reason)
	log.Error(err, "the Secret cannot be served, keeping the served certificate", "reason", reason)
}

func (w *Provider) currentState() pki.ServingState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Distrusted returns the number of calls of ReportDistrust.
func (w *Provider) Distrusted() uint64 { return w.distrusted.Load() }

// ReportDistrust handles a client that rejects the served certificate. If the
// certificate is of a new CA and on trial, the Provider serves the previous one
// for a while.
func (w *Provider) ReportDistrust() {
	w.distrusted.Add(1)
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
		w.options.Log.Info("a client rejects the certificate of the new CA, serving the previous one for now",
			"serving", w.currentState().Presented().String())
		w.wake.Send() // to schedule the end of the fall-back
	}
}

// GetCertificate is for [tls.Config]. It loads a pointer. Before the first
// certificate, handshakes wait: API servers may call a restarted replica at any
// time.
func (w *Provider) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	m := w.current.Load()
	if m == nil || len(m.tls.Certificate) == 0 {
		if m = w.waitForCertificate(hello); m == nil {
			return nil, errors.New("no certificate has been loaded yet")
		}
	}
	return m.tls, nil
}

// firstTimeout is shorter than the server's timeout of handshakes.
const firstTimeout = 4 * time.Second

// waitForCertificate waits for the first certificate; nil after the timeout.
func (w *Provider) waitForCertificate(hello *tls.ClientHelloInfo) *material {
	ctx, cancel := context.WithTimeout(hello.Context(), w.firstTimeout)
	defer cancel()
	select {
	case <-w.loaded:
		return w.current.Load()
	case <-ctx.Done():
		return nil
	}
}

// Bundle returns the trust bundle in PEM; nil until there is one.
func (w *Provider) Bundle() []byte {
	m := w.current.Load()
	if m == nil {
		return nil
	}
	return bytes.Clone(m.bundle)
}

// Path returns the secret first segment of the path that API servers call; ""
// until there is one.
func (w *Provider) Path() string {
	m := w.current.Load()
	if m == nil {
		return ""
	}
	return m.state.Serving.Path()
}

// Accepts reports whether the path is one that API servers call. It does not block
// and compares in constant time.
func (w *Provider) Accepts(path string) bool {
	m := w.current.Load()
	return m != nil && m.state.Serving.Accepts(path)
}

// TrustEpoch returns the epoch of the trust bundle; 0 until there is one.
func (w *Provider) TrustEpoch() int64 {
	m := w.current.Load()
	if m == nil {
		return 0
	}
	return m.state.Serving.TrustEpoch
}

// Committed returns the lowest epoch that this replica may still serve; 0 until it
// serves anything.
func (w *Provider) Committed() int64 { return w.currentState().Committed() }

// Fingerprint returns the SHA-256 of the served leaf in hexadecimal.
func (w *Provider) Fingerprint() string {
	m := w.current.Load()
	if m == nil || m.tls.Leaf == nil {
		return ""
	}
	sum := sha256.Sum256(m.tls.Leaf.Raw)
	return hex.EncodeToString(sum[:])
}

// Subscribe returns a channel that receives after changes of the certificate or
// the bundle, until ctx ends.
func (w *Provider) Subscribe(ctx context.Context) <-chan struct{} { return w.changes.Subscribe(ctx) }

// Ready returns an error if API servers would reject the served certificate: there
// is none, the published bundles do not verify it, or it is about to expire.
func (w *Provider) Ready() error {
	held := w.currentState()
	if held.Presented().IsZero() {
		reason := errNoSecret
		if r := w.rejection.Load(); r != nil {
			reason = r.err
		}
		return fmt.Errorf("no certificate from Secret %s/%s yet: %w", w.options.Namespace, servingName, reason)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	published, err := w.options.Published(ctx)
	if err != nil {
		return fmt.Errorf("reading the published bundles: %w", err)
	}
	if err := held.Check(published.live(), w.options.ServerNames, w.options.Lifetimes, w.options.clocks()); err != nil {
		return fmt.Errorf("API servers would reject the served certificate: %w", err)
	}
	if !w.confirmed.Load() {
		return errors.New("the serving Secret has not been read since this replica's Lease was written")
	}
	return nil
}

// readTimeout bounds a read from caches, which blocks until they are synced.
const readTimeout = time.Second
