package configurations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/registration"
)

// recheck is how soon it is looked again whether a replica that something waits
// for has gone without a word: nothing tells of that.
const recheck = time.Second

// Gate keeps a configuration back until every replica that is alive has loaded
// every policy in it: API servers may send its requests to any of them.
type Gate struct {
	// Live are the replicas that are alive, in a slice of the caller's own.
	Live func(context.Context) ([]replicas.Replica, error)
	// Subscribe tells of changes of Live.
	Subscribe func(context.Context) <-chan struct{}
	// Self is the identity of this replica. It plans what it has loaded and
	// does not wait for itself.
	Self string

	listeners events.Broadcaster
	mu        sync.Mutex
	waiting   map[string]string // by policy: what it waits for
	settling  map[string]bool   // by policy: API servers may still call as before
}

// Settling reports whether API servers may not yet call by a configuration of a
// policy as it was written last.
func (g *Gate) Settling(policy string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settling[policy]
}

func (g *Gate) settle(policies map[string]bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	changed := !maps.Equal(g.settling, policies)
	g.settling = policies
	g.mu.Unlock()
	if changed {
		g.listeners.Notify()
	}
}

// Waiting says what the registration of a policy waits for, empty where it
// does not.
func (g *Gate) Waiting(policy string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting[policy]
}

// Changes gives a channel that receives after each change of what Waiting says,
// until ctx ends.
func (g *Gate) Changes(ctx context.Context) <-chan struct{} { return g.listeners.Subscribe(ctx) }

// opening is the gate as it stands during one pass.
type opening struct {
	versions map[string]string // by policy: the resource version to be loaded
	others   []replicas.Replica
	unknown  string // why nobody knows the others
	waiting  map[string]string
}

// open looks at who has loaded what. Without a gate nothing is kept back.
func (g *Gate) open(ctx context.Context, state *policies.State) *opening {
	o := &opening{waiting: map[string]string{}}
	if g == nil {
		return o
	}
	others, err := g.others(ctx)
	if err != nil {
		o.unknown = err.Error()
		return o
	}
	o.others = others
	o.versions = make(map[string]string, len(state.Entries))
	for _, e := range state.Entries {
		o.versions[e.Policy.Name] = e.Policy.ResourceVersion
	}
	return o
}

// keeps reports whether a configuration has to wait, and remembers for which
// policies and why.
func (o *opening) keeps(want registration.Configuration) bool {
	kept := false
	for _, name := range registration.Members(want) {
		if why := o.why(name); why != "" {
			o.waiting[name] = why
			kept = true
		}
	}
	return kept
}

// why a policy is not registered yet. One that is not loaded here is on its way out.
func (o *opening) why(policy string) string {
	if o.unknown != "" {
		return o.unknown
	}
	version, ok := o.versions[policy]
	if !ok {
		return ""
	}
	return lags(o.others, version)
}

func lags(others []replicas.Replica, version string) string {
	for _, r := range others {
		if !policies.Reached(r.Policies, version) {
			return fmt.Sprintf("waiting for replica %s, which has not loaded it yet", r.Name)
		}
	}
	return ""
}

// Lags says which other replica, of those that are alive, has not loaded the
// resource version of a policy, empty where all have. A change that leaves the
// configurations as they are is kept back by nothing, and is served by all only then.
func (g *Gate) Lags(ctx context.Context, version string) string {
	others, err := g.others(ctx)
	if err != nil {
		return err.Error()
	}
	return lags(others, version)
}

// Reports gives a channel that receives when a replica has loaded something, or
// comes or goes, until ctx ends.
func (g *Gate) Reports(ctx context.Context) <-chan struct{} { return g.Subscribe(ctx) }

func (g *Gate) others(ctx context.Context) ([]replicas.Replica, error) {
	live, err := g.Live(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(live, func(r replicas.Replica) bool { return r.Name == g.Self }), nil
}

// close publishes what waits, and says when to look again; 0 is when asked to.
func (g *Gate) close(o *opening) time.Duration {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	changed := !maps.Equal(g.waiting, o.waiting)
	g.waiting = o.waiting
	g.mu.Unlock()
	if changed {
		g.listeners.Notify()
	}
	if len(o.waiting) > 0 {
		return recheck
	}
	return 0
}
