package webhooks

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// spareConnections are accepted beyond the limit, to be told so.
	spareConnections = 64
	// share is the part of the limit that is freed at a time: with it, making room costs little for each connection.
	share = 16
)

// connections are those that are open. There is no hard limit for an address: API servers may all come from one, of a
// load balancer or a tunnel. Instead, when all places are taken, room is made where it hurts nobody who calls.
//
// The lock is taken when a connection comes and when it goes, never for a request.
type connections struct {
	limit   int
	evicted func(reason string)

	count atomic.Int64
	mu    sync.Mutex
	open  map[*conn]struct{}
}

func newConnections(limit int, evicted func(reason string)) *connections {
	return &connections{limit: limit, evicted: evicted, open: map[*conn]struct{}{}}
}

// add takes in a new connection, and makes room for it where there is none. It reports whether there is a place for
// the connection; one that is in excess may be told so.
func (t *connections) add(c *conn) (ok bool) {
	t.mu.Lock()
	var close []*conn
	var reason string
	if len(t.open) >= t.limit {
		close, reason = chooseVictims(t.ranks(), c.from, t.limit)
		for _, victim := range close {
			victim.evicted.Store(true)
			delete(t.open, victim)
		}
	}
	c.excess = len(t.open) >= t.limit
	if ok = len(t.open) < t.limit+spareConnections; ok {
		t.open[c] = struct{}{}
	}
	t.count.Store(int64(len(t.open)))
	t.mu.Unlock()

	for _, victim := range close {
		t.evicted(reason)
		// Without TLS's farewell, which could wait. The goroutine that serves it sees the end of it.
		_ = victim.NetConn().Close()
	}
	if !ok {
		t.evicted(reasonFull)
	}
	return ok
}

func (t *connections) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	t.count.Store(int64(len(t.open)))
}

func (t *connections) ranks() []connRank {
	out := make([]connRank, 0, len(t.open))
	for c := range t.open {
		out = append(out, connRank{conn: c, from: c.from, progress: c.progress.Load(), proven: c.proven.Load(), busy: c.busy.Load(), since: c.since.Load()})
	}
	return out
}

// The reasons for which connections are closed that the client has not ended, as values of a metric's label.
const (
	reasonSilent = "silent" // it had sent no whole request yet
	reasonIdle   = "idle"   // it did nothing, and its address had most of the places
	reasonFull   = "full"   // there was no room for it
)

func evictionReasons() []string { return []string{reasonSilent, reasonIdle, reasonFull} }

// connRank is what counts about a connection when room has to be made.
type connRank struct {
	conn     *conn
	from     netip.Addr
	progress int32
	proven   bool  // it has sent a whole request, of somebody who may call
	busy     bool  // a request of it is being answered
	since    int64 // Unix nanoseconds: when it came, or was used last
}

// The progress of a connection before its first request.
const (
	stateNothing   int32 = iota // has come
	stateBegun                  // the handshake has
	stateHandshake              // hands are: the handshake is over
)

// chooseVictims returns whom to close for a connection from an address, and why.
//
// First, who has sent no whole request yet: those before others that have said less, and of them the oldest ones. An
// API server's handshake and request take milliseconds, so among many such connections the old ones are those of
// somebody who only wants to hold them. But it may keep one for later that it opened and did not need, and on a machine
// that is busy accepting ten thousand others all takes longer; what is held at no cost to who holds it goes before that.
// Where there are few, they are let be: they are more likely to be handshakes than an attack.
//
// Else, where another address holds more than half of all places, those of its connections that have been idle for
// longest. Requests are not cut off, and no address can push out another that has less.
func chooseVictims(all []connRank, newcomer netip.Addr, limit int) ([]*conn, string) {
	several := max(limit/share, 1)
	silent := pick(all, func(s connRank) bool { return !s.proven })
	if len(silent) > several || len(silent) == len(all) {
		return oldest(silent, several), reasonSilent
	}
	places := map[netip.Addr]int{}
	for _, s := range all {
		places[s.from]++
	}
	idle := pick(all, func(s connRank) bool { return !s.busy && s.proven && s.from != newcomer && places[s.from] > limit/2 })
	return oldest(idle, several), reasonIdle
}

func pick(all []connRank, want func(connRank) bool) []connRank {
	var out []connRank
	for _, s := range all {
		if want(s) {
			out = append(out, s)
		}
	}
	return out
}

// oldest returns so many connections at the most, of those that have said least those first that have not been used for
// longest.
func oldest(all []connRank, most int) []*conn {
	slices.SortFunc(all, func(a, b connRank) int {
		return cmp.Or(cmp.Compare(a.progress, b.progress), cmp.Compare(a.since, b.since))
	})
	out := make([]*conn, min(most, len(all)))
	for i := range out {
		out[i] = all[i].conn
	}
	return out
}
