package violations

import (
	"hash/maphash"
	"sync/atomic"
)

// The buffer has shards*slots records: those of one user fill one shard, so that a user with many violations leaves
// room for those of others.
const (
	shards = 8
	slots  = 128
)

// buffer passes records from admission requests to one reader. Adding one takes no lock and does not wait: a record that
// does not fit is dropped and counted.
type buffer struct {
	seed    maphash.Seed
	shards  [shards]shard
	dropped atomic.Uint64
	next    int // the slot that the reader takes next
}

type shard struct {
	added atomic.Uint64
	slots [slots]atomic.Pointer[record]
}

func newBuffer() *buffer { return &buffer{seed: maphash.MakeSeed()} }

// add adds the record that read returns. It does not call read if there is no room.
func (b *buffer) add(user string, read func() *record) {
	s := &b.shards[maphash.String(b.seed, user)%shards]
	slot := &s.slots[s.added.Add(1)%slots]
	if slot.Load() != nil || !slot.CompareAndSwap(nil, read()) {
		b.dropped.Add(1)
	}
}

// take passes up to limit records to a function, in turn from each shard. Only one goroutine may call it.
func (b *buffer) take(limit int, each func(*record)) {
	for range slots {
		for i := range b.shards {
			if r := b.shards[i].slots[b.next].Swap(nil); r != nil {
				each(r)
				limit--
			}
		}
		b.next = (b.next + 1) % slots
		if limit <= 0 {
			return
		}
	}
}
