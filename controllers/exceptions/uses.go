package exceptions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ostiary/ostiary/internal/exceptions"
)

const (
	// maxEncoded bounds the counts that a replica adds to its Lease, which is written every 4 s, in bytes.
	maxEncoded = 8 << 10
	// shownFor is how long after a use the Lease has a count. Leases that are lost lose none so.
	shownFor = 2 * time.Minute
)

// uses counts the requests that exceptions of this replica let pass, since its start. It is safe for
// concurrent use.
type uses struct {
	counters sync.Map // exceptions.Key to *counter

	mu   sync.Mutex
	next string // the exception that the next Lease begins with
}

type counter struct {
	requests atomic.Uint64
	last     atomic.Int64 // seconds since 1970
}

// Excepted counts a request that passes because of an exception. It takes a lock only for the first
// one of each exception.
func (s *Store) Excepted(_ string, exception exceptions.Key) {
	found, ok := s.uses.counters.Load(exception)
	if !ok {
		found, _ = s.uses.counters.LoadOrStore(exception, &counter{})
	}
	c := found.(*counter)
	c.requests.Add(1)
	c.last.Store(time.Now().Unix())
}

// EncodeUses returns the counts of what was used lately, one in a line and as many as have room: an
// exception, its requests since the start of this replica, and when the last one was. If there are
// more, the next call begins with them.
func (s *Store) EncodeUses() string {
	u := &s.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	lines, since := map[string]string{}, time.Now().Add(-shownFor).Unix()
	u.counters.Range(func(key, value any) bool {
		k, c := key.(exceptions.Key), value.(*counter)
		switch last := c.last.Load(); {
		case !s.keeps(k):
			u.counters.Delete(k)
		case last >= since:
			lines[k.String()] = fmt.Sprintf("%s %d %d\n", k, c.requests.Load(), last)
		}
		return true
	})
	names := slices.Sorted(maps.Keys(lines))
	first, _ := slices.BinarySearch(names, u.next)
	u.next = ""
	var out strings.Builder
	for _, name := range slices.Concat(names[first:], names[:first]) {
		if out.Len()+len(lines[name]) > maxEncoded {
			u.next = name
			break
		}
		out.WriteString(lines[name])
	}
	return out.String()
}

func (s *Store) keeps(key exceptions.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[key.Namespace]
	return sp != nil && sp.records[key.Name] != nil
}

// use is a count of a replica.
type use struct {
	requests uint64
	last     time.Time
}

// decodeUses reads what EncodeUses returns. It ignores lines that it cannot read, such as those of a
// later version.
func decodeUses(text string) map[exceptions.Key]use {
	out := map[exceptions.Key]use{}
	for line := range strings.Lines(text) {
		var name string
		var requests uint64
		var last int64
		if n, err := fmt.Sscanf(line, "%s %d %d\n", &name, &requests, &last); n != 3 || err != nil {
			continue
		}
		key := exceptions.Key{Name: name}
		if namespace, name, found := strings.Cut(name, "/"); found {
			key = exceptions.Key{Namespace: namespace, Name: name}
		}
		out[key] = use{requests, time.Unix(last, 0)}
	}
	return out
}
