package lookups

import (
	"context"
	"sync"

	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
)

// snapshot reads one state of each index. It keeps what has changed since then in memory.
type snapshot struct {
	*Store

	mu    sync.Mutex
	views map[*index]*lookups.View
}

// Snapshot returns lookups whose results are all of the same state of an index: that of the first query. An index that
// is no longer usable is an error, as in Lookup.
func (s *Store) Snapshot() policy.Lookups {
	return &snapshot{Store: s, views: map[*index]*lookups.View{}}
}

// Lookup implements policy.Lookups.
func (s *snapshot) Lookup(ctx context.Context, p *lookups.Program, q lookups.Query) (lookups.Result, error) {
	return s.find(ctx, p, q, s.view)
}

func (s *snapshot) view(x *index) *lookups.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views[x] == nil {
		s.views[x] = x.data.View()
	}
	return s.views[x]
}

// Unread returns why nothing is known of the objects of a lookup; "" once they have been listed.
func (s *Store) Unread(d lookups.Definition) string {
	x := (*s.indexes.Load())[d]
	if x == nil {
		return describe(d.GroupVersionResource()) + " are not watched yet"
	}
	if x.complete.Load() {
		return ""
	}
	return x.unusable()
}
