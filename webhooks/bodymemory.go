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
	// maxMemoryWait bounds how long one body waits for memory in all, whatever timeout the caller gives.
	maxMemoryWait = 5 * time.Second
	// reassessInterval is how often waiting bodies are looked at again: bodies become slow without any event.
	reassessInterval = 50 * time.Millisecond

	// minRate is the least rate, in bytes per second, that a body needs beyond the grace period. The largest body may
	// take some 14 s longer than the grace period; API servers send from memory and take a fraction of a second.
	minRate = 2 << 20
	// A body is slow, and replaceable by every faster one when memory is short, if it lags by more than maxLag behind
	// one that arrives at fastRate.
	fastRate = 8 << 20
	maxLag   = 250 * time.Millisecond
)

// errMemory means that a large body had to wait too long for memory, or gave up its memory to another one.
var errMemory = errors.New("too many large bodies")

// bodyMemory bounds the memory of all large bodies. Bodies reserve memory as their bytes arrive. While there is enough
// for everybody, nobody is limited. Otherwise it makes room by dropping unfinished bodies: see mayReplace.
//
// The lock is taken each time that a body doubles and at its end, never for small bodies.
type bodyMemory struct {
	total int64
	held  atomic.Int64 // written under mu

	mu         sync.Mutex
	bodies     map[*largeBody]struct{}
	networks   map[netip.Prefix]*bodyShare
	addrs      map[netip.Addr]*bodyShare
	waiting    int
	reassessed time.Time
}

// bodyShare is what one source, a network or an address, holds. Dropped bodies do not count.
type bodyShare struct {
	held   int64
	bodies int
	addrs  int // of a network: addresses that have bodies
}

// largeBody is a body of more than 32 KiB. Its goroutine alone calls grow, finish and release.
type largeBody struct {
	from     netip.Addr
	stop     func() // makes the pending read end
	received atomic.Int64
	dropped  atomic.Bool

	// Written under the lock of bodyMemory.
	waitLeft      time.Duration // time that is left for waiting
	began         time.Time     // moved on by the time of each wait
	held, need    int64
	waitingSince  time.Time
	granted       chan struct{} // closed when the wait ends
	finished      bool
	network, addr *bodyShare // nil before the first reservation
}

func newBodyMemory(total int64) *bodyMemory {
	return &bodyMemory{total: total, bodies: map[*largeBody]struct{}{}, networks: map[netip.Prefix]*bodyShare{}, addrs: map[netip.Addr]*bodyShare{}}
}

// grow reserves memory until the body holds size bytes, and waits for it if needed.
func (m *bodyMemory) grow(ctx context.Context, l *largeBody, size int64) error {
	m.mu.Lock()
	if l.dropped.Load() {
		m.mu.Unlock()
		return errMemory
	}
	m.register(l)
	now := time.Now()
	l.need, l.waitingSince, l.granted = size-l.held, now, make(chan struct{})
	m.waiting++
	if m.waiting == 1 && m.held.Load()+l.need <= m.total {
		m.grant(l, now)
	} else {
		m.reassess(now)
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
	tick := time.NewTicker(reassessInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.granted:
			return m.granted(l)
		case <-ctx.Done():
			return errMemory // the caller releases what the body holds
		case now := <-tick.C:
			m.mu.Lock()
			if now.Sub(m.reassessed) >= reassessInterval {
				m.reassess(now)
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

// finish protects a body that has arrived from being dropped. It reports false if it was dropped before.
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
		m.unregister(l)
	}
	if m.waiting > 0 {
		m.reassess(time.Now())
	}
}

// register counts a body among those of its source.
func (m *bodyMemory) register(l *largeBody) {
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

// unregister ends what join began, and a wait.
func (m *bodyMemory) unregister(l *largeBody) {
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

// networkOf returns the /24 or /64 of an address: the size of network that one client often has for itself.
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

// reassess gives memory to bodies that wait, one after the other, and makes room for the first for which there is none.
func (m *bodyMemory) reassess(now time.Time) {
	m.reassessed = now
	for m.waiting > 0 {
		next, free := m.next(), m.total-m.held.Load()
		if next.need <= free {
			m.grant(next, now)
			continue
		}
		if next.need <= free+m.leaving() {
			return
		}
		victim := m.victimFor(next, now)
		if victim == nil {
			return
		}
		victim.dropped.Store(true)
		m.unregister(victim)
		victim.stop()
	}
}

// leaving returns the memory of dropped bodies whose reader has not returned yet.
func (m *bodyMemory) leaving() (n int64) {
	for l := range m.bodies {
		if l.dropped.Load() {
			n += l.held
		}
	}
	return n
}

// next returns the waiting body that gets memory first.
func (m *bodyMemory) next() (first *largeBody) {
	for l := range m.bodies {
		if l.need > 0 && (first == nil || precedes(l, first) < 0) {
			first = l
		}
	}
	return first
}

// precedes orders waiting bodies: those of sources that hold less first, then those of which more has arrived, so that
// bodies of one source end one after the other.
func precedes(a, b *largeBody) int {
	return cmp.Or(cmp.Compare(a.network.held, b.network.held), cmp.Compare(a.addr.held, b.addr.held),
		cmp.Compare(b.received.Load(), a.received.Load()), a.waitingSince.Compare(b.waitingSince))
}

// victimFor returns the unfinished body to drop for the first waiting one, or nil. Where every body waits for another,
// it is the last of them.
func (m *bodyMemory) victimFor(next *largeBody, now time.Time) (victim *largeBody) {
	var last *largeBody
	deadlock := true
	for l := range m.bodies {
		switch {
		case l == next || l.dropped.Load():
			continue
		case l.need == 0:
			deadlock = false
		case last == nil || precedes(last, l) < 0:
			last = l
		}
		if !l.finished && m.mayReplace(next, l, now) && (victim == nil || worse(l, victim, now) > 0) {
			victim = l
		}
	}
	if victim == nil && deadlock {
		return last
	}
	return victim
}

// mayReplace reports whether a body may take the memory of another one: of every slow one that is slower than itself,
// and, as long as its own source has less than a fair share, of a source that has more. Fair shares are equal ones
// among networks, and in a network among its addresses.
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

// worse orders bodies that may be dropped: slow ones after others, then by what their source holds, then by slowness.
func worse(a, b *largeBody, now time.Time) int {
	slow := func(l *largeBody) int {
		if l.lag(now) > maxLag {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(slow(a), slow(b)), cmp.Compare(a.network.held, b.network.held),
		cmp.Compare(a.addr.held, b.addr.held), cmp.Compare(a.lag(now), b.lag(now)))
}

// lag is how much later a body is than one that arrives at fastRate. Time in which it waited for memory does not count.
func (l *largeBody) lag(now time.Time) time.Duration {
	if l.need > 0 {
		now = l.waitingSince
	}
	return now.Sub(l.began) - durationAt(fastRate, l.received.Load())
}

// durationAt is how long n bytes take at a rate.
func durationAt(rate, n int64) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}
