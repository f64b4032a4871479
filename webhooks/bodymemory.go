package webhooks

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxMemoryWait bounds the total time that one body waits for memory, whatever timeout the caller gives.
	maxMemoryWait = 5 * time.Second
	// assignInterval is how often memory is assigned again to waiting bodies: a body becomes slow without any event.
	assignInterval = 50 * time.Millisecond

	// minRate is the minimum rate of a body, in bytes per second, after the grace period. The largest body may take 14 s
	// longer than the grace period. API servers send from memory and take a fraction of a second.
	minRate = 2 << 20
	// A body is slow if it lags by more than maxLag behind a body that arrives at fastRate. When memory is short, every
	// faster body may replace it.
	fastRate = 8 << 20
	maxLag   = 250 * time.Millisecond
)

// errMemory means that a large body waited too long for memory, or was dropped in favor of another one.
var errMemory = errors.New("too many large bodies")

// bodyMemory bounds the memory of all large bodies. Bodies reserve memory as their bytes arrive. When memory is short,
// bodies wait, and unfinished ones are dropped: see mayReplace.
//
// The lock is taken each time a body doubles and at its end, never for small bodies.
type bodyMemory struct {
	total int64
	held  atomic.Int64 // written under mu

	mu       sync.Mutex
	bodies   map[*largeBody]struct{}
	networks map[netip.Prefix]*bodyShare
	addrs    map[netip.Addr]*bodyShare
	waiting  int
	assigned time.Time // of the last call of assign
}

// bodyShare is the memory that one source, a network or an address, holds. Dropped bodies do not count.
type bodyShare struct {
	held   int64
	bodies int
	addrs  int // of a network: addresses that have bodies
}

// largeBody is a body of more than 32 KiB. Only its own goroutine calls grow, finish and release.
type largeBody struct {
	from     netip.Addr
	stop     func() // ends the pending read
	received atomic.Int64
	dropped  atomic.Bool

	// Written under the lock of bodyMemory.
	waitLeft      time.Duration // remaining time for waits
	began         time.Time     // plus the time of each wait
	held, need    int64
	waitingSince  time.Time
	granted       chan struct{} // closed when the wait ends
	finished      bool
	network, addr *bodyShare // nil before the first reservation
}

func newBodyMemory(total int64) *bodyMemory {
	return &bodyMemory{total: total, bodies: map[*largeBody]struct{}{}, networks: map[netip.Prefix]*bodyShare{}, addrs: map[netip.Addr]*bodyShare{}}
}

// grow reserves memory until the body holds size bytes. It waits while there is not enough.
func (m *bodyMemory) grow(ctx context.Context, l *largeBody, size int64) error {
	m.mu.Lock()
	if l.dropped.Load() {
		m.mu.Unlock()
		return errMemory
	}
	m.addToSource(l)
	now := time.Now()
	l.need, l.waitingSince, l.granted = size-l.held, now, make(chan struct{})
	m.waiting++
	if m.waiting == 1 && m.held.Load()+l.need <= m.total {
		m.grant(l, now)
	} else {
		m.assign(now)
	}
	left := l.waitLeft
	m.mu.Unlock()
	return m.wait(ctx, l, left)
}

// wait waits for memory, up to left.
func (m *bodyMemory) wait(ctx context.Context, l *largeBody, left time.Duration) error {
	select {
	case <-l.granted:
		return m.granted(l)
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	tick := time.NewTicker(assignInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.granted:
			return m.granted(l)
		case <-ctx.Done():
			return errMemory // the caller releases the body
		case now := <-tick.C:
			m.mu.Lock()
			if now.Sub(m.assigned) >= assignInterval {
				m.assign(now)
			}
			m.mu.Unlock()
		}
	}
}

func (m *bodyMemory) granted(l *largeBody) error {
	if l.dropped.Load() {
		return errMemory
	}
	return nil
}

// finish protects a complete body from being dropped. It returns false if the body was dropped before.
func (m *bodyMemory) finish(l *largeBody) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.finished = !l.dropped.Load()
	return l.finished
}

// release ends the reservation of a body.
func (m *bodyMemory) release(l *largeBody) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.bodies[l]; !ok {
		return
	}
	delete(m.bodies, l)
	m.held.Add(-l.held)
	if !l.dropped.Load() {
		m.removeFromSource(l)
	}
	if m.waiting > 0 {
		m.assign(time.Now())
	}
}

// addToSource counts a body among those of its source, once.
func (m *bodyMemory) addToSource(l *largeBody) {
	if l.network != nil {
		return
	}
	m.bodies[l] = struct{}{}
	network := networkOf(l.from)
	if m.networks[network] == nil {
		m.networks[network] = &bodyShare{}
	}
	l.network = m.networks[network]
	if m.addrs[l.from] == nil {
		m.addrs[l.from] = &bodyShare{}
		l.network.addrs++
	}
	l.addr = m.addrs[l.from]
	l.network.bodies++
	l.addr.bodies++
}

// removeFromSource reverses addToSource, and ends a wait of the body.
func (m *bodyMemory) removeFromSource(l *largeBody) {
	if l.need > 0 {
		l.need = 0
		m.waiting--
		close(l.granted)
	}
	l.network.held -= l.held
	l.addr.held -= l.held
	l.network.bodies--
	l.addr.bodies--
	if l.addr.bodies == 0 {
		delete(m.addrs, l.from)
		l.network.addrs--
	}
	if l.network.bodies == 0 {
		delete(m.networks, networkOf(l.from))
	}
}

// networkOf returns the /24 (IPv4) or /64 (IPv6) of an address: one client often controls a network of that size.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits) // an invalid address has the zero prefix
	return p
}

func (m *bodyMemory) grant(l *largeBody, now time.Time) {
	waited := now.Sub(l.waitingSince)
	l.began = l.began.Add(waited)
	l.waitLeft -= waited
	l.held += l.need
	l.network.held += l.need
	l.addr.held += l.need
	m.held.Add(l.need)
	l.need = 0
	m.waiting--
	close(l.granted)
}

// assign grants memory to waiting bodies in order, and drops other bodies for the first one that does not fit.
func (m *bodyMemory) assign(now time.Time) {
	m.assigned = now
	for m.waiting > 0 {
		next, free := m.next(), m.total-m.held.Load()
		if next.need <= free {
			m.grant(next, now)
			continue
		}
		if next.need <= free+m.unreleased() {
			return
		}
		victim := m.victimFor(next, now)
		if victim == nil {
			return
		}
		victim.dropped.Store(true)
		m.removeFromSource(victim)
		victim.stop()
	}
}

// unreleased returns the memory of dropped bodies whose reader has not returned yet.
func (m *bodyMemory) unreleased() (n int64) {
	for l := range m.bodies {
		if l.dropped.Load() {
			n += l.held
		}
	}
	return n
}

// next returns the first waiting body, nil if there is none.
func (m *bodyMemory) next() (first *largeBody) {
	for l := range m.bodies {
		if l.need > 0 && (first == nil || compareWaiting(l, first) < 0) {
			first = l
		}
	}
	return first
}

// compareWaiting orders waiting bodies: those of sources that hold less come first, then those of which more bytes have
// arrived, so that bodies of one source complete one after the other.
func compareWaiting(a, b *largeBody) int {
	return cmp.Or(cmp.Compare(a.network.held, b.network.held), cmp.Compare(a.addr.held, b.addr.held),
		cmp.Compare(b.received.Load(), a.received.Load()), a.waitingSince.Compare(b.waitingSince))
}

// victimFor returns the unfinished body to drop for the first waiting one, nil if there is none. If every body waits,
// the last one is dropped.
func (m *bodyMemory) victimFor(next *largeBody, now time.Time) (victim *largeBody) {
	var last *largeBody
	deadlock := true
	for l := range m.bodies {
		switch {
		case l == next || l.dropped.Load():
			continue
		case l.need == 0:
			deadlock = false
		case last == nil || compareWaiting(last, l) < 0:
			last = l
		}
		if !l.finished && m.mayReplace(next, l, now) && (victim == nil || compareVictims(l, victim, now) > 0) {
			victim = l
		}
	}
	if victim == nil && deadlock {
		return last
	}
	return victim
}

// mayReplace reports whether a body may take the memory of another one: of every slow body that is slower than itself,
// and, while its own source holds less than a fair share, of bodies whose source holds more. Networks have equal fair
// shares, as have the addresses of one network.
func (m *bodyMemory) mayReplace(next, l *largeBody, now time.Time) bool {
	if lag := l.lag(now); lag > maxLag && lag > next.lag(now) {
		return true
	}
	mine, theirs, fair := next.network, l.network, m.total/int64(len(m.networks))
	if mine == theirs {
		mine, theirs, fair = next.addr, l.addr, l.network.held/int64(l.network.addrs)
	}
	return mine != theirs && mine.held+next.need <= fair && theirs.held > fair
}

// compareVictims orders bodies that may be dropped; the greatest is dropped first. Slow bodies are greater than others,
// then those whose source holds more, then those that lag more.
func compareVictims(a, b *largeBody, now time.Time) int {
	slow := func(l *largeBody) int {
		if l.lag(now) > maxLag {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(slow(a), slow(b)), cmp.Compare(a.network.held, b.network.held),
		cmp.Compare(a.addr.held, b.addr.held), cmp.Compare(a.lag(now), b.lag(now)))
}

// lag returns how far a body is behind one that arrives at fastRate. Time spent waiting for memory does not count.
func (l *largeBody) lag(now time.Time) time.Duration {
	if l.need > 0 {
		now = l.waitingSince
	}
	return now.Sub(l.began) - durationAt(fastRate, l.received.Load())
}

// durationAt returns how long n bytes take at a rate in bytes per second.
func durationAt(rate, n int64) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}
