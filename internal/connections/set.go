package connections

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// Spare is the number of connections that are accepted beyond the limit and get 503.
	Spare = 64
	// At most limit/evictionShare connections are evicted at a time, so that the cost per new connection is small.
	evictionShare = 16
	// The youngest limit/youngShare connections are not evicted while there are others.
	youngShare = 4
)

// Set is the open connections of a port, and bounds their number. An address has no limit of its own: all clients may
// share one, that of a load balancer or a tunnel. Instead, when the limit is reached, connections without a pending
// request are evicted.
//
// The lock is taken when a connection opens and when it closes, never for a request.
type Set struct {
	limit   int
	evicted func(reason string)

	count atomic.Int64
	mu    sync.Mutex
	open  map[*Conn]struct{}
}

// NewSet returns a set for so many connections. It calls evicted with the reason of each eviction, which must not block.
func NewSet(limit int, evicted func(reason string)) *Set {
	return &Set{limit: limit, evicted: evicted, open: map[*Conn]struct{}{}}
}

// Count returns the number of open connections.
func (t *Set) Count() int { return int(t.count.Load()) }

// add adds a new connection, and evicts others if the limit is reached. It returns false if the caller must close the
// connection. It sets excess if the connection is beyond the limit and its requests get 503.
func (t *Set) add(c *Conn) (ok bool) {
	t.mu.Lock()
	var close []*Conn
	var reason string
	if len(t.open) >= t.limit {
		close, reason = chooseVictims(t.states(), c.from, t.limit)
		for _, victim := range close {
			victim.evicted.Store(true)
			delete(t.open, victim)
		}
	}
	c.excess = len(t.open) >= t.limit
	if ok = len(t.open) < t.limit+Spare; ok {
		t.open[c] = struct{}{}
	}
	t.count.Store(int64(len(t.open)))
	t.mu.Unlock()

	for _, victim := range close {
		t.evicted(reason)
		// Without the TLS close notification, which could block. The goroutine that serves the connection ends.
		_ = victim.raw.Close()
	}
	if !ok {
		t.evicted(reasonFull)
	}
	return ok
}

func (t *Set) remove(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	t.count.Store(int64(len(t.open)))
}

func (t *Set) states() []connState {
	out := make([]connState, 0, len(t.open))
	for c := range t.open {
		out = append(out, connState{conn: c, from: c.from, progress: c.progress.Load(), proven: c.proven.Load(), busy: c.busy.Load(), since: c.since.Load()})
	}
	return out
}

// The reasons of evictions, as values of a metric label.
const (
	reasonSilent = "silent" // it had sent no complete request
	reasonIdle   = "idle"   // it was idle, and its address held more than half of the limit
	reasonFull   = "full"   // no other connection could be evicted for it
)

// EvictionReasons returns the reasons of evictions.
func EvictionReasons() []string { return []string{reasonSilent, reasonIdle, reasonFull} }

// connState is the state of a connection that decides whether it is evicted.
type connState struct {
	conn     *Conn
	from     netip.Addr
	progress int32
	proven   bool  // it has sent a complete request of an authenticated caller
	busy     bool  // a request of it is being processed
	since    int64 // Unix nanoseconds: when it was opened or last used
}

// The progress of a connection before its first request.
const (
	progressNone      int32 = iota // no data has arrived
	progressData                   // the handshake has begun
	progressHandshake              // the handshake is complete
)

// chooseVictims returns the connections to evict for a new one from an address, and the reason.
//
// First, connections that have sent no complete request: those with the least progress, and of them the oldest. The
// handshake and request of an API server take milliseconds, so if there are many such connections, the old ones belong
// to a client that only holds them. API servers also keep connections that they opened and did not use, and a busy
// machine is slower; so connections that cost the client nothing are evicted first. A few such connections are spared:
// they are more likely handshakes than an attack. So are the youngest: otherwise the handshake of a client would have to
// end before limit/evictionShare others have ended theirs.
//
// Otherwise, if another address holds more than half of the limit, its connections that have been idle for longest.
// Requests are never interrupted, and no address can evict connections of one that holds fewer.
func chooseVictims(all []connState, newAddress netip.Addr, limit int) ([]*Conn, string) {
	several := max(limit/evictionShare, 1)
	silent := filter(all, func(s connState) bool { return !s.proven })
	if len(silent) > several || len(silent) == len(all) {
		return leastProgress(withoutYoungest(silent, min(limit/youngShare, len(silent)-several)), several), reasonSilent
	}
	counts := map[netip.Addr]int{}
	for _, s := range all {
		counts[s.from]++
	}
	idle := filter(all, func(s connState) bool { return !s.busy && s.proven && s.from != newAddress && counts[s.from] > limit/2 })
	return leastProgress(idle, several), reasonIdle
}

func filter(all []connState, want func(connState) bool) []connState {
	var out []connState
	for _, s := range all {
		if want(s) {
			out = append(out, s)
		}
	}
	return out
}

// withoutYoungest returns all but the youngest connections, and all if the number is not positive.
func withoutYoungest(all []connState, youngest int) []connState {
	slices.SortFunc(all, func(a, b connState) int { return cmp.Compare(a.since, b.since) })
	return all[:len(all)-max(youngest, 0)]
}

// leastProgress returns at most most connections: those with the least progress first, then those unused for longest.
func leastProgress(all []connState, most int) []*Conn {
	slices.SortFunc(all, func(a, b connState) int {
		return cmp.Or(cmp.Compare(a.progress, b.progress), cmp.Compare(a.since, b.since))
	})
	out := make([]*Conn, min(most, len(all)))
	for i := range out {
		out[i] = all[i].conn
	}
	return out
}
