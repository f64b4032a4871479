// Package backends serves policies with an external backend: it watches their CA
// bundles, issues certificates for their Services and probes their reachability. Only the
// leader does this. Other replicas keep the registered bundles.
//
// Secrets are read and written by name, in a context in which the client logs
// nothing.
package backends

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/pki"
)

// maxObjects is the maximum number of watched objects.
const maxObjects = 1000

// Options configures a Store.
type Options struct {
	Client kubernetes.Interface
	// Namespace is Ostiary's namespace.
	Namespace string
	// Rule limits the addresses of probes.
	Rule       egress.Rule
	Log        logr.Logger
	Registerer prometheus.Registerer
}

// Store holds the state of all policies' backends.
type Store struct {
	options   Options
	account   string     // Ostiary's ServiceAccount, namespace/name, for messages
	lifetimes pki.Config // of issued certificates
	listeners events.Broadcaster
	probes    *prober
	wake      events.Signal // something may have changed
	changed   events.Signal // the same, for the issuing goroutine
	// remembered is the last used CA. Only the issuing goroutine accesses it.
	remembered pki.Issuer

	mu       sync.Mutex
	backends map[types.UID]*backend
	watches  map[secrets.Object]*watch
	leading  context.Context // nil while this replica does not lead
	running  *sync.WaitGroup // goroutines of the current leadership
	issued   map[secrets.Object]trust
}

// backend is the backend of one policy.
type backend struct {
	policy  *v1alpha1.WebhookPolicy // shared with the cache
	checked checkedTrust
	now     trust  // what the source holds
	good    []byte // the last valid bundle
	known   bool   // that there was one
	reach   reachability
}

// New returns a Store that watches nothing yet.
func New(o Options) *Store {
	s := &Store{
		options: o, account: o.Namespace + "/ostiary", lifetimes: pki.Config{}.WithDefaults(), probes: newProber(o.Client.CoreV1(), o.Rule),
		backends: map[types.UID]*backend{}, watches: map[secrets.Object]*watch{}, wake: events.NewSignal(), changed: events.NewSignal(),
	}
	s.register()
	return s
}

// Subscribe returns a channel that receives after changes of a bundle or a
// condition, until ctx ends.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// Want sets the policies whose backends are watched. It ignores policies without a
// backend.
func (s *Store) Want(policies []*v1alpha1.WebhookPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := map[types.UID]*backend{}
	for _, p := range policies {
		if p.Spec.Backend == nil {
			continue
		}
		b := s.backends[p.UID]
		if b == nil {
			b = &backend{}
		}
		if b.policy == nil || b.policy.Generation != p.Generation {
			if !b.isFor(p) {
				b.reach.restart()
			}
			b.policy = p
			b.checked = checkedTrust{}
		}
		after[p.UID] = b
	}
	s.backends = after
	s.follow()
	s.resolve()
	s.notify()
}

// notify wakes both loops of Run.
func (s *Store) notify() {
	s.wake.Send()
	s.changed.Send()
}

// sorted returns the backends by the names of their policies.
func (s *Store) sorted() []*backend {
	return slices.SortedFunc(maps.Values(s.backends), func(a, b *backend) int { return cmp.Compare(a.policy.Name, b.policy.Name) })
}

// follow starts and stops watches, so that exactly the sources of the backends are
// watched.
func (s *Store) follow() {
	wanted := map[secrets.Object]bool{}
	if s.leading != nil {
		for _, b := range s.sorted() {
			if from := sourceOf(b.policy.Spec.Backend); from != nil && len(wanted) < maxObjects {
				wanted[from.object] = true
			}
			if o, issued := certificateOf(b); issued && len(wanted) < maxObjects {
				wanted[o] = true
			}
		}
	}
	for o, w := range s.watches {
		if !wanted[o] {
			w.stop()
			delete(s.watches, o)
		}
	}
	for o := range wanted {
		if s.watches[o] == nil {
			s.watches[o] = s.watch(o)
		}
	}
}

// watch watches an object while a policy needs it.
type watch struct {
	*secrets.Watch
	stop context.CancelFunc
}

func (s *Store) watch(o secrets.Object) *watch {
	ctx, stop := context.WithCancel(s.leading)
	w := &watch{secrets.NewWatch(s.options.Client, o, logr.Discard(), s.notify), stop} // policies report errors
	s.running.Go(func() { w.Run(ctx) })
	return w
}

// resolve evaluates every bundle again and reports whether one has changed.
func (s *Store) resolve() bool {
	changed := false
	now := time.Now()
	for _, b := range s.backends {
		t := s.trust(b, now)
		if t.reason == ReasonCAReading && b.known && b.now.reason != "" {
			continue // a new leader keeps what it knows
		}
		if t.reason != b.now.reason || t.message != b.now.message || t.ok() && !bytes.Equal(t.bundle, b.good) {
			changed = true
		}
		b.now = t
		if t.ok() {
			if !bytes.Equal(b.good, t.bundle) {
				b.reach.restart()
			}
			b.good, b.known = t.bundle, true
		}
	}
	return changed
}

func (s *Store) trust(b *backend, now time.Time) trust {
	spec := b.policy.Spec.Backend
	switch from := sourceOf(spec); {
	case from != nil:
		w := s.watches[from.object]
		if w == nil && s.leading != nil {
			return tooMany()
		}
		data, problem := from.read(w, s.account)
		if problem.reason != "" {
			return problem
		}
		return b.checked.check(data, from.String(), now)
	case spec.Certificate != nil:
		o, _ := certificateOf(b)
		if s.watches[o] == nil && s.leading != nil {
			return tooMany()
		}
		if t, known := s.issued[o]; known {
			return t
		}
		return trust{reason: ReasonCAReading, message: "the certificate has not been issued yet"}
	case len(spec.CABundle) > 0:
		return b.checked.check(spec.CABundle, "spec.backend.caBundle", now)
	default:
		return trust{reason: ReasonCARead, message: "the API server verifies the backend with the root certificates of its host"}
	}
}

func tooMany() trust {
	return trust{
		reason:  ReasonCAFailed,
		message: "Ostiary watches the maximum number of Secrets and ConfigMaps: use caBundle in some policies",
	}
}

// Bundle returns the CA bundle for a policy's backend: the current one, or else
// the last valid one. It is not ok if there has been none.
func (s *Store) Bundle(p *v1alpha1.WebhookPolicy) (bundle []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[p.UID]
	if b == nil || !b.known {
		return nil, false
	}
	return b.good, true
}

// Adopt takes a registered bundle as the last valid one, if this replica leads and
// knows none. The previous leader registered it.
func (s *Store) Adopt(p *v1alpha1.WebhookPolicy, bundle []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.backends[p.UID]; b != nil && s.leading != nil && !b.known {
		b.good, b.known = bundle, true
	}
}

// Run maintains the backends until ctx ends. It may be called again after it has
// returned.
func (s *Store) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.begin(ctx, &running)
	running.Go(func() { s.issue(ctx) })
	defer s.begin(nil, nil) //nolint:staticcheck // a nil context means that this replica does not lead
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
		}
		s.refresh(ctx, &running)
	}
}

func (s *Store) begin(lead context.Context, running *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.running = lead, running
	s.follow()
	defer s.listeners.Notify() // to adopt the registered bundles
	if lead != nil {
		return
	}
	s.issued = nil
	for _, b := range s.backends {
		*b = backend{policy: b.policy} // the next leader has newer state
	}
	s.resolve()
}

// refresh resolves every bundle and starts the probes that are due.
func (s *Store) refresh(ctx context.Context, running *sync.WaitGroup) {
	s.mu.Lock()
	changed := s.resolve()
	due := s.due()
	s.mu.Unlock()
	if changed {
		s.listeners.Notify()
	}
	for _, p := range due {
		running.Go(func() { s.probe(ctx, p) })
	}
}
