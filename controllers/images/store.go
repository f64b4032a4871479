// Package images connects policies to image policy webhooks. Their kubeconfigs are
// in Secrets of Ostiary's namespace, which every replica watches while a policy
// refers to them.
package images

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// Store implements pluginapi.Images and manager.Runnable.
type Store struct {
	client    kubernetes.Interface
	namespace string
	log       logr.Logger
	listeners events.Broadcaster
	end       context.Context
	stop      context.CancelFunc

	watches atomic.Pointer[map[string]*watch] // by the Secret's name; replaced as a whole

	mu sync.Mutex // guards changes of watches
}

// New returns a Store that watches nothing yet.
func New(client kubernetes.Interface, namespace string, log logr.Logger) *Store {
	s := &Store{client: client, namespace: namespace, log: log}
	s.end, s.stop = context.WithCancel(context.Background())
	s.watches.Store(&map[string]*watch{})
	return s
}

// NeedLeaderElection returns false: every replica calls the backends.
func (s *Store) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It ends all watches when ctx ends.
func (s *Store) Start(ctx context.Context) error {
	<-ctx.Done()
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range *s.watches.Load() {
		w.end()
	}
	return nil
}

// Subscribe returns a channel that receives after each change of a Secret, until
// ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Want sets the backends whose Secrets are watched.
func (s *Store) Want(backends []pluginapi.SecretKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := *s.watches.Load(), map[string]*watch{}
	for _, b := range backends {
		if after[b.Name] != nil {
			continue
		}
		if after[b.Name] = before[b.Name]; after[b.Name] == nil {
			after[b.Name] = s.watch(b.Name)
		}
	}
	s.watches.Store(&after)
	for name, w := range before {
		if after[name] == nil {
			w.end()
		}
	}
}

// Backend implements pluginapi.Images. It creates a client per version of a Secret.
func (s *Store) Backend(at pluginapi.SecretKey) (pluginapi.ImageBackend, error) {
	w := (*s.watches.Load())[at.Name]
	if w == nil {
		return nil, fmt.Errorf("Secret %s/%s, with the kubeconfig of the image policy backend, is not watched yet", s.namespace, at.Name) //nolint:staticcheck // a kind's name
	}
	b, err := w.backend(s.namespace, at)
	if err != nil {
		return nil, fmt.Errorf("Secret %s/%s, with the kubeconfig of the image policy backend: %w", s.namespace, at.Name, err) //nolint:staticcheck // a kind's name
	}
	return b, nil
}

func (s *Store) watch(name string) *watch {
	ctx, stop := context.WithCancel(s.end)
	at := secrets.Object{Kind: secrets.KindSecret, Namespace: s.namespace, Name: name}
	from := secrets.NewWatch(s.client, at, s.log, s.listeners.Notify)
	w := &watch{secret: from.Secret, data: from.Data, problem: from.Problem, stop: stop}
	w.running.Go(func() { from.Run(ctx) })
	return w
}

// watch watches one Secret.
type watch struct {
	secret  func() *corev1.Secret // nil if it does not exist or has not been read yet
	data    func() (_ map[string][]byte, known bool)
	problem func() error // the error of the last list or watch
	stop    context.CancelFunc
	running sync.WaitGroup
	made    sync.Map // *made by the field of the Secret
}

// missingError returns the reason why there is no Secret.
func (w *watch) missingError(namespace, name string) error {
	problem := w.problem()
	if apierrors.IsForbidden(problem) {
		return fmt.Errorf("Ostiary may not watch it: grant get, list and watch of Secret %s in namespace %s to the ServiceAccount of Ostiary", name, namespace) //nolint:staticcheck // a name
	}
	var large *secrets.TooLargeError
	if errors.As(problem, &large) {
		return large
	}
	if problem != nil {
		return fmt.Errorf("it cannot be read: see the log of Ostiary")
	}
	if _, known := w.data(); known {
		return fmt.Errorf("it does not exist: create it in namespace %s", namespace)
	}
	return fmt.Errorf("it has not been read yet: wait some seconds")
}

func (w *watch) end() {
	w.stop()
	w.running.Wait()
}

// made is the client, or the error, for one version of a Secret.
type made struct {
	version string
	backend *backend
	err     error
}

func (w *watch) backend(namespace string, at pluginapi.SecretKey) (*backend, error) {
	secret := w.secret()
	if secret == nil {
		return nil, w.missingError(namespace, at.Name)
	}
	if m, ok := w.made.Load(at.Key); ok {
		if m, ok := m.(*made); ok && m.version == secret.ResourceVersion {
			return m.backend, m.err
		}
	}
	m := &made{version: secret.ResourceVersion}
	if kubeconfig, ok := secret.Data[at.Key]; !ok {
		m.err = fmt.Errorf("it has no field %s", at.Key)
	} else if m.backend, m.err = newBackend(kubeconfig); m.err != nil {
		m.err = fmt.Errorf("field %s: %w", at.Key, m.err)
	}
	w.made.Store(at.Key, m)
	return m.backend, m.err
}
