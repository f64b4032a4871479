package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/internal/pki"
)

// Watcher keeps the newest usable certificate and trust bundle of the serving
// Secret in memory. What it has once accepted it serves until something better
// comes: a Secret that is damaged or deleted changes nothing but the alarm.
type Watcher struct {
	client  kubernetes.Interface
	options Options
	metrics *metrics
	current atomic.Pointer[material]
	refusal atomic.Pointer[refusal]

	mu          sync.Mutex
	subscribers []chan struct{}
}

// material is what is served, ready for use. It is never changed.
type material struct {
	pair   pki.Pair
	bundle pki.Bundle
	tls    *tls.Certificate
	pem    []byte
}

// refusal is why the Secret, at this version of it, is not served.
type refusal struct {
	version string
	reason  pki.Reason
	err     error
}

var errNoSecret = errors.New("the Secret does not exist or has not been read yet")

// NewWatcher returns a Watcher that knows nothing until Start.
func NewWatcher(client kubernetes.Interface, o Options) *Watcher {
	w := &Watcher{client: client, options: o.withDefaults(), metrics: newMetrics()}
	w.refusal.Store(&refusal{reason: reasonOf(errNoSecret), err: errNoSecret})
	return w
}

// NeedLeaderElection says that every replica watches.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start watches until ctx ends. It is called once.
func (w *Watcher) Start(ctx context.Context) error {
	if err := w.options.validate(); err != nil {
		return err
	}
	if err := w.metrics.register(w.options.Registerer); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(quiet(ctx))
	var group wait.Group
	defer group.Wait()
	defer cancel()
	wake := make(chan struct{}, 1)
	store, err := w.options.watchSecret(ctx, &group, w.client, w.options.SecretNames.Serving, wake)
	if err != nil {
		return err
	}
	// A certificate that is not yet valid by this replica's clock becomes so
	// without an event.
	tick := w.options.Clock.NewTicker(maxRest)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C():
		}
		w.look(store)
	}
}

func (w *Watcher) look(store cache.Store) {
	obj, _, err := store.GetByKey(w.options.Namespace + "/" + w.options.SecretNames.Serving)
	secret, ok := obj.(*corev1.Secret)
	if err != nil || !ok {
		w.refuse("", errNoSecret)
		return
	}
	m, err := w.judge(secret)
	if err != nil {
		w.refuse(secret.ResourceVersion, err)
		return
	}
	w.refusal.Store(nil)
	w.swap(m)
}

// judge reads the Secret and decides whether it may be served.
func (w *Watcher) judge(secret *corev1.Secret) (*material, error) {
	pair, err := readPair(secret)
	if err != nil {
		return nil, err
	}
	bundle, err := readBundle(secret)
	if err != nil {
		return nil, err
	}
	if err := pair.Check(bundle, w.options.ServerNames, w.options.now()); err != nil {
		return nil, inField(chainField, err)
	}
	return &material{pair: pair, bundle: bundle, tls: pair.TLS(), pem: bundle.PEM()}, nil
}

// refuse keeps what is served and raises the alarm, once for each version of
// the Secret.
func (w *Watcher) refuse(version string, err error) {
	reason := reasonOf(err)
	last := w.refusal.Swap(&refusal{version: version, reason: reason, err: err})
	if last != nil && last.version == version && last.reason == reason {
		return
	}
	log := w.options.Log.WithValues("namespace", w.options.Namespace, "secret", w.options.SecretNames.Serving, "serving", w.serving())
	if errors.Is(err, errNoSecret) {
		log.Info("the Secret is gone, keeping what is served")
		return
	}
	w.metrics.refused(reason)
	log.Error(err, "the Secret is not fit to be served, keeping what is served", "reason", reason)
}

func (w *Watcher) serving() string {
	if m := w.current.Load(); m != nil {
		return m.pair.String()
	}
	return "nothing"
}

func (w *Watcher) swap(m *material) {
	if old := w.current.Load(); old != nil && bytes.Equal(old.pem, m.pem) && slices.EqualFunc(old.tls.Certificate, m.tls.Certificate, bytes.Equal) {
		return
	}
	w.current.Store(m)
	leaf := m.pair.Certificate()
	w.metrics.served(leaf, m.bundle.Issuer(leaf))
	w.options.Log.Info("serving", "certificate", m.pair.String())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.subscribers {
		poke(s)
	}
}

// GetCertificate is for [tls.Config]. It only reads a pointer.
func (w *Watcher) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m := w.current.Load()
	if m == nil {
		return nil, errors.New("no certificate has been loaded yet")
	}
	return m.tls, nil
}

// Bundle returns the trust bundle in PEM: the roots under which what is served
// verifies. It is nil until there is one.
func (w *Watcher) Bundle() []byte {
	m := w.current.Load()
	if m == nil {
		return nil
	}
	return bytes.Clone(m.pem)
}

// Subscribe returns a channel that receives after every change of the
// certificate or the bundle. Changes that follow each other quickly may arrive
// as one. The channel lives as long as the Watcher.
func (w *Watcher) Subscribe() <-chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers = append(w.subscribers, c)
	return c
}

// Ready reports why API servers would not be served well: there is no
// certificate, it does not verify, or it is about to expire.
func (w *Watcher) Ready() error {
	m := w.current.Load()
	if m == nil {
		reason := errNoSecret
		if r := w.refusal.Load(); r != nil {
			reason = r.err
		}
		return fmt.Errorf("no certificate from Secret %s/%s yet: %w", w.options.Namespace, w.options.SecretNames.Serving, reason)
	}
	now := w.options.now()
	if err := m.pair.Check(m.bundle, w.options.ServerNames, now); err != nil {
		return fmt.Errorf("the served certificate is of no use: %w", err)
	}
	leaf := m.pair.Certificate()
	if left, least := leaf.NotAfter.Sub(now), pki.MinimumLeft(leaf); left < least {
		return fmt.Errorf("the served certificate expires in %s, less than %s: it should have been renewed long ago", left.Round(time.Second), least)
	}
	return nil
}
