package lookups

import (
	"context"
	"testing"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
)

// TestSnapshot: the results of a snapshot are those of its first query, while the store has the latest ones.
func TestSnapshot(t *testing.T) {
	a, b := thing{namespace: "n", name: "a", key: "k"}, thing{namespace: "n", name: "b", key: "k"}
	api := newServer(a)
	store := api.start(t, nil)
	p := programOf(t, v1alpha1.Lookup{})
	if got, want := store.Unread(p.Definition), "things are not watched yet"; got != want {
		t.Errorf("before Want: %q, want %q", got, want)
	}
	store.Want([]*lookups.Program{p})
	wantFound(t, store, p, "n", "k", "a")
	if got := store.Unread(p.Definition); got != "" {
		t.Errorf("after a list: %q, want nothing", got)
	}
	before := store.Snapshot()
	count := func(l policy.Lookups) int {
		t.Helper()
		found, err := l.Lookup(context.Background(), p, lookups.Query{Keys: []string{"k"}, Namespace: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Values)
	}
	if got := count(before); got != 1 {
		t.Errorf("found %d objects, want 1", got)
	}
	revision := store.Revision(p.Definition)
	api.change(func() { api.things = append(api.things, b) }, "ADDED", b)
	wantFound(t, store, p, "n", "k", "a b")
	if got := count(before); got != 1 {
		t.Errorf("found %d objects after a change, want 1", got)
	}
	if got := count(store.Snapshot()); got != 2 {
		t.Errorf("found %d objects in a later snapshot, want 2", got)
	}
	if store.Revision(p.Definition) == revision {
		t.Error("the revision is the same after a change")
	}
	store.Want(nil)
	if _, err := before.Lookup(context.Background(), p, lookups.Query{Keys: []string{"k"}, Namespace: "n"}); err == nil {
		t.Error("a lookup that nothing wants is no error")
	}
}
