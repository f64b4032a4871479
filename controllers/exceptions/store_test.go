package exceptions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// raw is an exception as API servers send it. Its age orders those of a namespace.
func raw(namespace, name string, age int, fields ...string) []byte {
	created := time.Unix(1_800_000_000-int64(age), 0).UTC().Format(time.RFC3339)
	return fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q,"uid":"uid-%s","resourceVersion":"%d","generation":1,`+
		`"creationTimestamp":%q},"spec":{"policyName":"p","validations":["*"],"match":[{"group":"","resources":["pods"]}],"reason":"r"%s}}`,
		namespace, name, name, 1000-age, created, strings.Join(append([]string{""}, fields...), ","))
}

// newTestStore returns a store that is in effect, with room for so many exceptions without a condition in a
// namespace, and twice as many in all.
func newTestStore(t *testing.T, room int64) *Store {
	t.Helper()
	s, err := NewStore(Options{Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	one, err := newRecord(raw("n", "a", 0), s.known)
	if err != nil {
		t.Fatal(err)
	}
	s.limits = limits{total: 2 * room * one.size, namespace: room * one.size, cluster: room * one.size}
	for _, g := range s.guards {
		g.exists.Store(true)
		g.synced.Store(true)
		g.Contacted()
	}
	for _, c := range s.collections {
		c.Contacted()
		c.BeginList()
		c.EndList("1")
	}
	return s
}

func (s *Store) putAll(t *testing.T, objects ...[]byte) {
	t.Helper()
	for _, object := range objects {
		if err := s.collections[0].Put(object, true); err != nil {
			t.Fatal(err)
		}
	}
}

// names are those of the exceptions in effect for the policy p in a namespace, sorted.
func (s *Store) names(namespace string) (out []string) {
	for _, e := range s.For("p", namespace) {
		out = append(out, e.Name)
	}
	slices.Sort(out)
	return out
}

// Whatever the order in which they arrive, the oldest exceptions of a namespace stay.
func TestOldestStay(t *testing.T) {
	objects := [][]byte{raw("n", "a", 5), raw("n", "b", 4), raw("n", "c", 3), raw("n", "d", 2), raw("n", "e", 1)}
	for name, order := range map[string][]int{
		"oldest first": {0, 1, 2, 3, 4}, "youngest first": {4, 3, 2, 1, 0}, "mixed": {3, 0, 4, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, 3)
			for _, i := range order {
				s.putAll(t, objects[i])
			}
			if diff := cmp.Diff([]string{"a", "b", "c"}, s.names("n")); diff != "" {
				t.Errorf("in effect (-want +got):\n%s", diff)
			}
			if out := s.spaces["n"].out; out != 2 {
				t.Errorf("%d are left out, want 2", out)
			}
			var excluded []string
			for range 2 {
				excluded = append(excluded, (<-s.excluded).Name)
			}
			if slices.Sort(excluded); !slices.Equal(excluded, []string{"d", "e"}) {
				t.Errorf("the leader gets %v", excluded)
			}
		})
	}
}

// What is left out is read again as soon as there is room, and not before.
func TestLeftOutComesBack(t *testing.T) {
	s := newTestStore(t, 4)
	c := s.collections[0]
	objects := [][]byte{raw("n", "a", 6), raw("n", "b", 5), raw("n", "c", 4), raw("n", "d", 3), raw("n", "e", 2)}
	s.putAll(t, objects...)
	if c.IsIncomplete() {
		t.Error("a full namespace is read again")
	}
	if err := c.Remove(objects[1]); err != nil {
		t.Fatal(err)
	}
	s.putAll(t, raw("n", "f", 1)) // fits, but an older one is left out
	if diff := cmp.Diff([]string{"a", "c", "d"}, s.names("n")); diff != "" {
		t.Errorf("in effect (-want +got):\n%s", diff)
	}
	if !c.IsIncomplete() {
		t.Error("a namespace with room is not read again")
	}
	c.BeginList()
	s.putAll(t, objects[0], objects[2], objects[3], objects[4], raw("n", "f", 1))
	c.EndList("2")
	if diff := cmp.Diff([]string{"a", "c", "d", "e"}, s.names("n")); diff != "" {
		t.Errorf("in effect after a list (-want +got):\n%s", diff)
	}
}

// A namespace that uses most loses exceptions to others.
func TestNamespacesShareTheMemory(t *testing.T) {
	s := newTestStore(t, 4)
	for i := range 4 {
		s.putAll(t, raw("n", fmt.Sprint("n", i), 100-i), raw("m", fmt.Sprint("m", i), 100-i))
	}
	s.putAll(t, raw("small", "s", 1))
	if diff := cmp.Diff([]string{"s"}, s.names("small")); diff != "" {
		t.Errorf("in effect (-want +got):\n%s", diff)
	}
	if got := len(s.names("n")) + len(s.names("m")); got != 7 {
		t.Errorf("%d of the large namespaces are in effect, want 7", got)
	}
	if s.used > s.limits.total {
		t.Errorf("%d bytes, more than %d", s.used, s.limits.total)
	}
}

func TestPut(t *testing.T) {
	for name, tc := range map[string]struct {
		put  [][]byte
		want []string
		// wantUnloaded is reported to other replicas.
		wantUnloaded string
	}{
		"one":                  {put: [][]byte{raw("n", "a", 1)}, want: []string{"a"}},
		"an unknown field":     {put: [][]byte{raw("n", "a", 1, `"onlyIf":"x"`)}, wantUnloaded: "n/a"},
		"not an exception":     {put: [][]byte{[]byte(`{"metadata":{"namespace":"n","name":"a"},"spec":{"policyName":3}}`)}},
		"it becomes unknown":   {put: [][]byte{raw("n", "a", 1), again(raw("n", "a", 1, `"onlyIf":"x"`))}, wantUnloaded: "n/a"},
		"it becomes no object": {put: [][]byte{raw("n", "a", 1), []byte(`{"metadata":{"namespace":"n","name":"a"},"spec":[]}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, 10)
			s.putAll(t, tc.put...)
			if diff := cmp.Diff(tc.want, s.names("n")); diff != "" {
				t.Errorf("in effect (-want +got):\n%s", diff)
			}
			var report versionskew.Report
			s.Report(&report)
			if report.Unloaded != tc.wantUnloaded {
				t.Errorf("unloaded %q, want %q", report.Unloaded, tc.wantUnloaded)
			}
		})
	}
}

func again(object []byte) []byte {
	return []byte(strings.Replace(string(object), `"generation":1`, `"generation":2`, 1))
}

// A status changes neither what is in effect nor the version that other replicas have to load.
func TestStatusIsNoChange(t *testing.T) {
	s := newTestStore(t, 10)
	s.putAll(t, raw("n", "a", 10))
	entry, want := s.For("p", "n")[0], s.records()[0].version
	s.putAll(t, []byte(strings.Replace(string(raw("n", "a", 10)), `"resourceVersion":"990"`, `"resourceVersion":"995"`, 1)))
	got := s.records()[0]
	if s.For("p", "n")[0] != entry || got.version != want || got.current != "995" {
		t.Errorf("loaded with %s, last seen as %s; want %s and 995, and the same entry", got.version, got.current, want)
	}
	var report versionskew.Report
	s.Report(&report)
	if want := (versionskew.Vector{versionskew.Exceptions: "995", versionskew.ClusterExceptions: "1"}); report.Loaded != want {
		t.Errorf("reported %v, want %v", report.Loaded, want)
	}
}

// Without a guard, or without news from the API server, nothing is in effect or reported as loaded.
func TestNothingIsInEffect(t *testing.T) {
	silent := func(c *clock) { c.last.Store(new(time.Now().Add(-maxSilence))) }
	for name, attack := range map[string]func(*Store){
		"no policy":         func(s *Store) { s.guards[0].set(false) },
		"no binding":        func(s *Store) { s.guards[1].set(false) },
		"a silent policy":   func(s *Store) { silent(&s.guards[0].clock) },
		"a silent watch":    func(s *Store) { silent(&s.collections[0].clock) },
		"the other kind is": func(s *Store) { silent(&s.collections[1].clock) },
		"not listed":        func(s *Store) { s.collections[1].synced.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, 10)
			s.putAll(t, raw("n", "a", 1))
			if len(s.names("n")) != 1 {
				t.Fatal("nothing is in effect before")
			}
			attack(s)
			var report versionskew.Report
			s.Report(&report)
			if got := s.names("n"); len(got) > 0 || report.Loaded != (versionskew.Vector{}) {
				t.Errorf("in effect: %v; reported %v", got, report.Loaded)
			}
		})
	}
}

func TestUses(t *testing.T) {
	s := newTestStore(t, 1000)
	a, b := exceptions.Key{Namespace: "n", Name: "a"}, exceptions.Key{Namespace: "n", Name: "b"}
	s.putAll(t, raw("n", "a", 2), raw("n", "b", 1))
	for range 3 {
		s.Excepted("p", a)
	}
	s.Excepted("p", b)
	s.Excepted("p", exceptions.Key{Name: "gone"})
	got := decodeUses(s.EncodeUses() + "of a later version\n")
	if len(got) != 2 || got[a].requests != 3 || got[b].requests != 1 || got[a].last.IsZero() {
		t.Errorf("got %v, want 3 and 1", got)
	}
	for i := range 500 {
		name := fmt.Sprintf("one-with-a-long-name-%d", i)
		s.putAll(t, raw("n", name, 1))
		s.Excepted("p", exceptions.Key{Namespace: "n", Name: name})
	}
	seen := map[exceptions.Key]use{}
	for range 4 {
		text := s.EncodeUses()
		if len(text) > maxEncoded {
			t.Errorf("%d bytes, more than %d", len(text), maxEncoded)
		}
		for key, u := range decodeUses(text) {
			seen[key] = u
		}
	}
	if len(seen) != 502 {
		t.Errorf("%d exceptions in four Leases, want all 502", len(seen))
	}
}
