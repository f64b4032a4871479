package queue

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// A flow is counted in one cell of each row. With 64 busy flows, two of 10,000 others share all their cells with busy
// ones, and wait as long as those: see TestFewFlowsShareAllCells.
const rows, columns = 4, 512

// usage counts what each flow uses, without a lock and in a fixed amount of memory, however many flows there are. It is
// a count-min sketch: a flow is counted in several cells, which it shares with different flows, so that the smallest
// count is that of the flow itself or, rarely, too large. The seed keeps clients from choosing names with equal cells.
type usage struct {
	seed  maphash.Seed
	cells [rows][columns]cell
}

// cell counts the flows that share it.
type cell struct {
	virtual  atomic.Int64 // virtual time, in nanoseconds: see Limiter
	average  atomic.Int64 // recent average time of a request in a slot, in nanoseconds
	slots    atomic.Int64 // in use
	accepted atomic.Int64 // requests
}

// cells are those of one flow.
type cells [rows]*cell

func newUsage() *usage { return &usage{seed: maphash.MakeSeed()} }

func (u *usage) of(f Flow) cells {
	hash := maphash.Comparable(u.seed, f)
	var out cells
	for i := range out {
		out[i] = &u.cells[i][hash%columns]
		hash /= columns
	}
	return out
}

// least returns the smallest value of a counter.
func (c *cells) least(counter func(*cell) *atomic.Int64) int64 {
	out := counter(c[0]).Load()
	for _, other := range c[1:] {
		out = min(out, counter(other).Load())
	}
	return out
}

func (c *cells) add(counter func(*cell) *atomic.Int64, n int64) {
	for _, one := range c {
		counter(one).Add(n)
	}
}

// charge adds time in a slot to the virtual time of the flow, which is at least that of the limiter.
func (c *cells) charge(virtual int64, used time.Duration) {
	for _, one := range c {
		for {
			before := one.virtual.Load()
			if one.virtual.CompareAndSwap(before, max(before, virtual)+int64(used)) {
				break
			}
		}
	}
}

// observe adds the time of a request to the average. A lost concurrent update does no harm.
func (c *cells) observe(spent time.Duration) {
	const weight = 8
	for _, one := range c {
		average := one.average.Load()
		one.average.Store(average + (int64(spent)-average)/weight)
	}
}

func virtualOf(c *cell) *atomic.Int64  { return &c.virtual }
func averageOf(c *cell) *atomic.Int64  { return &c.average }
func slotsOf(c *cell) *atomic.Int64    { return &c.slots }
func acceptedOf(c *cell) *atomic.Int64 { return &c.accepted }
