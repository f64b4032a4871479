package exceptions

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/exceptions"
)

// tally adds up what replicas count, during one term of a leader. What a replica counted before the
// term is in the status already, except for uses of about the last minute.
type tally struct {
	mu      sync.Mutex
	before  bool // the replicas of the start have been seen
	seen    map[string]map[exceptions.Key]uint64
	pending map[exceptions.Key]*pending
}

// pending are the uses of an exception that its status does not have.
type pending struct {
	uid      types.UID // empty until the exception is seen
	requests int64
	last     time.Time
	written  time.Time
}

// add adds what replicas have counted since the last call.
func (t *tally) add(live []replicas.Replica) {
	t.mu.Lock()
	defer t.mu.Unlock()
	after := make(map[string]map[exceptions.Key]uint64, len(live))
	if t.pending == nil {
		t.pending = map[exceptions.Key]*pending{}
	}
	for i := range live {
		counts, known := t.seen[live[i].Name]
		if !known {
			counts = map[exceptions.Key]uint64{}
		}
		after[live[i].Name] = counts
		for key, u := range decodeUses(live[i].ExceptionUses) {
			last := counts[key]
			if u.requests < last {
				last = 0 // the replica has restarted
			}
			counts[key] = u.requests
			if known || t.before {
				t.count(key, use{u.requests - last, u.last})
			}
		}
	}
	t.seen, t.before = after, true
}

func (t *tally) count(key exceptions.Key, u use) {
	if u.requests == 0 {
		return
	}
	p := t.pending[key]
	if p == nil {
		p = &pending{}
		t.pending[key] = p
	}
	p.requests += int64(min(u.requests, 1<<40))
	if u.last.After(p.last) {
		p.last = u.last
	}
}

// update sets the uses of a status, and reports whether it is time to write them.
func (t *tally) update(s *status) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used, s.lastUsed = s.record.status.used, s.record.status.lastUsed
	p := t.pending[s.Key]
	if p == nil {
		return false
	}
	if p.uid != s.uid && p.uid != "" { // another exception had the name
		delete(t.pending, s.Key)
		return false
	}
	p.uid = s.uid
	s.used += p.requests
	if p.last.After(s.lastUsed) {
		s.lastUsed = p.last
	}
	return p.requests > 0 && s.now.Sub(p.written) >= usesInterval
}

// wrote notes that a status has its uses.
func (t *tally) wrote(s *status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.pending[s.Key]; p != nil && p.uid == s.uid {
		p.requests, p.written = 0, s.now
	}
}

// keep forgets exceptions that are gone.
func (t *tally) keep(all []record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) == 0 {
		return
	}
	kept := make(map[exceptions.Key]struct{}, len(all))
	for i := range all {
		kept[all[i].Key] = struct{}{}
	}
	for key := range t.pending {
		if _, ok := kept[key]; !ok {
			delete(t.pending, key)
		}
	}
}
