package queue

import (
	"container/heap"
	"container/list"
	"time"
)

// waiter is a request that waits for a slot.
type waiter struct {
	slot  *Slot
	ready chan struct{} // closed when the request has a slot
	flow  *flow         // nil when it no longer waits
	place *list.Element
	cost  time.Duration // that it is expected to take
}

// flow holds the waiting requests of a flow. A flow exists only while a request waits.
type flow struct {
	name    Flow
	cells   cells
	virtual int64      // at most the virtual time of the flow, by which the heap is ordered
	turn    uint64     // among flows with the same virtual time, the least is first
	at      int        // in the heap
	waiting *list.List // of *waiter
	cost    time.Duration
}

// waitingFlows are the flows with waiting requests. The zero value has none.
type waitingFlows struct {
	byName map[Flow]*flow
	order  flowHeap
	turns  uint64
	cost   time.Duration // of all flows
}

// add adds a request to its flow. A request that had a slot before goes first, so that few requests are half done.
func (f *waitingFlows) add(w *waiter, first bool) {
	own := f.byName[w.slot.flow]
	if own == nil {
		own = &flow{name: w.slot.flow, cells: w.slot.cells, virtual: w.slot.cells.least(virtualOf), waiting: list.New()}
		if f.byName == nil {
			f.byName = map[Flow]*flow{}
		}
		f.byName[own.name] = own
		f.takeTurn(own)
		heap.Push(&f.order, own)
	}
	w.flow, w.cost = own, time.Duration(own.cells.least(averageOf))
	own.cost, f.cost = own.cost+w.cost, f.cost+w.cost
	if first {
		w.place = own.waiting.PushFront(w)
	} else {
		w.place = own.waiting.PushBack(w)
	}
}

// takeTurn puts a flow behind those with the same virtual time.
func (f *waitingFlows) takeTurn(own *flow) {
	f.turns++
	own.turn = f.turns
}

// remove removes a request.
func (f *waitingFlows) remove(w *waiter) {
	own := w.flow
	own.waiting.Remove(w.place)
	own.cost, f.cost = own.cost-w.cost, f.cost-w.cost
	w.flow = nil
	if own.waiting.Len() == 0 {
		delete(f.byName, own.name)
		heap.Remove(&f.order, own.at)
	}
}

// next removes and returns the first request of the flow with the least virtual time that can take a slot, or nil. The
// virtual time of a flow never decreases, so a flow with an old value is at most too far ahead in the heap.
func (f *waitingFlows) next(virtual int64, take func(*cells) bool) *waiter {
	var denied []*flow // at most one for every two slots: others use none
	defer func() {
		for _, own := range denied {
			heap.Push(&f.order, own)
		}
	}()
	for len(f.order) > 0 {
		own := f.order[0]
		if now := max(virtual, own.cells.least(virtualOf)); now > own.virtual {
			own.virtual = now
			heap.Fix(&f.order, 0)
			continue
		}
		if !take(&own.cells) {
			heap.Pop(&f.order)
			denied = append(denied, own)
			continue
		}
		w, _ := own.waiting.Front().Value.(*waiter) // the list has no other type
		f.takeTurn(own)
		heap.Fix(&f.order, 0)
		f.remove(w)
		return w
	}
	return nil
}

// work returns the time in slots that passes before the last request of a flow has ended: the flow's own, and for every
// other flow as much, but not more than the others need.
func (f *waitingFlows) work(own *flow) time.Duration {
	return own.cost + min(f.cost-own.cost, time.Duration(len(f.byName)-1)*own.cost)
}

// flowHeap implements heap.Interface.
type flowHeap []*flow

func (h flowHeap) Len() int { return len(h) }

func (h flowHeap) Less(i, j int) bool {
	if h[i].virtual != h[j].virtual {
		return h[i].virtual < h[j].virtual
	}
	return h[i].turn < h[j].turn
}

func (h flowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *flowHeap) Push(x any) {
	own, _ := x.(*flow) // the heap has no other type
	own.at = len(*h)
	*h = append(*h, own)
}

// Pop implements heap.Interface.
func (h *flowHeap) Pop() any {
	last := len(*h) - 1
	own := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return own
}
