package lookups_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/lookups"
)

var (
	inNamespace = lookups.Definition{Resource: "pods", Scope: v1alpha1.LookupScopeNamespace, KeyErrors: v1alpha1.LookupKeyErrorsFail}
	inCluster   = lookups.Definition{Resource: "pods", Scope: v1alpha1.LookupScopeCluster, KeyErrors: v1alpha1.LookupKeyErrorsSkip}
)

// ref names an object by "namespace/name"; its UID is the same text.
func ref(text string) lookups.Ref {
	namespace, name, _ := strings.Cut(text, "/")
	return lookups.Ref{UID: text, Namespace: namespace, Name: name}
}

func put(x *lookups.Index, object string, keys ...string) {
	x.Put(ref(object), lookups.Entry{Keys: keys})
}

func names(found lookups.Result) (out []string) {
	for _, v := range found.Values {
		out = append(out, v.Namespace+"/"+v.Name)
	}
	return out
}

func TestFind(t *testing.T) {
	fill := func(x *lookups.Index) {
		put(x, "b/one", "app=x")
		put(x, "a/two", "app=x", "tier=db")
		put(x, "a/one", "app=x", "tier=web")
		put(x, "a/three", "tier=db")
		put(x, "/cluster", "app=x")
	}
	tests := map[string]struct {
		definition lookups.Definition
		query      lookups.Query
		want       []string
	}{
		"in the namespace": {
			definition: inNamespace, query: lookups.Query{Namespace: "a", Keys: []string{"app=x"}}, want: []string{"a/one", "a/two"},
		},
		"in the cluster, in order": {
			definition: inCluster, query: lookups.Query{Namespace: "a", Keys: []string{"app=x"}},
			want: []string{"/cluster", "a/one", "a/two", "b/one"},
		},
		"in no namespace": {definition: inNamespace, query: lookups.Query{Keys: []string{"app=x"}}, want: []string{"/cluster"}},
		"one of two keys": {
			definition: inNamespace, query: lookups.Query{Namespace: "a", Keys: []string{"app=x", "tier=db"}},
			want: []string{"a/one", "a/three", "a/two"},
		},
		"all keys of the request": {
			definition: inNamespace, want: []string{"a/two"},
			query: lookups.Query{Namespace: "a", Keys: []string{"app=x", "tier=db"}, Match: v1alpha1.LookupMatchAllRequestKeys},
		},
		"all keys of the request, one unknown": {
			definition: inNamespace,
			query:      lookups.Query{Namespace: "a", Keys: []string{"app=x", "no"}, Match: v1alpha1.LookupMatchAllRequestKeys},
		},
		"all keys of the object": {
			definition: inNamespace, want: []string{"a/three", "a/two"},
			query: lookups.Query{Namespace: "a", Keys: []string{"app=x", "b=c", "tier=db"}, Match: v1alpha1.LookupMatchAllStoredKeys},
		},
		"no keys": {definition: inCluster, query: lookups.Query{Match: v1alpha1.LookupMatchAllRequestKeys}},
		"without its own object, by UID": {
			definition: inNamespace, want: []string{"a/two"},
			query: lookups.Query{Namespace: "a", Keys: []string{"app=x"}, Own: lookups.Own{UID: "a/one"}},
		},
		"without its own object, by name": {
			definition: inCluster, want: []string{"/cluster", "a/one", "a/two"},
			query: lookups.Query{Namespace: "b", Keys: []string{"app=x"}, Own: lookups.Own{IsStored: true, Namespace: "b", Name: "one"}},
		},
		"an object of another resource with the same name": {
			definition: inNamespace, want: []string{"a/one", "a/two"},
			query: lookups.Query{Namespace: "a", Keys: []string{"app=x"}, Own: lookups.Own{UID: "other", Namespace: "a", Name: "one"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := lookups.NewIndex(tc.definition, lookups.Limits{})
			fill(x)
			got, err := x.Find(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tc.want, names(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFindBounds: a query with a result beyond the bounds is an error, and one at the bounds is none.
func TestFindBounds(t *testing.T) {
	x := lookups.NewIndex(inCluster, lookups.Limits{})
	x.Update(func(c *lookups.Changes) {
		for i := range 60_000 {
			keys := []string{"all", "every"}
			if i < lookups.MaxValues {
				keys = append(keys, "some")
			}
			c.Put(ref(fmt.Sprintf("n/%d", i)), lookups.Entry{Keys: keys})
		}
	})
	tests := map[string]struct {
		query   lookups.Query
		want    int
		wantErr string
	}{
		"as many as permitted": {query: lookups.Query{Keys: []string{"some"}}, want: lookups.MaxValues},
		"too many":             {query: lookups.Query{Keys: []string{"all"}}, wantErr: "more than 1000 objects are found"},
		"without the own one":  {query: lookups.Query{Keys: []string{"some"}, Own: lookups.Own{UID: "n/1"}}, want: lookups.MaxValues - 1},
		"too many comparisons": {
			query:   lookups.Query{Keys: []string{"all"}, Match: v1alpha1.LookupMatchAllStoredKeys},
			wantErr: "more than 50000 keys of objects are compared: use keys that fewer objects have",
		},
		"a rare and a frequent key": {
			query: lookups.Query{Keys: []string{"none", "some"}, Match: v1alpha1.LookupMatchAllRequestKeys},
		},
		"two frequent keys": {
			query:   lookups.Query{Keys: []string{"all", "every"}, Match: v1alpha1.LookupMatchAllRequestKeys},
			wantErr: "more than 50000 keys of objects are compared",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := x.Find(tc.query)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got the error %v, want %q", err, tc.wantErr)
			}
			if len(got.Values) != tc.want {
				t.Errorf("got %d objects, want %d", len(got.Values), tc.want)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	failure := errors.New("no such key: spec")
	tests := map[string]struct {
		definition lookups.Definition
		limits     lookups.Limits
		change     func(*lookups.Index)
		want       []string // of the key k in namespace a
		wantErr    string
		wantStats  lookups.Stats
	}{
		"an object is replaced": {
			definition: inNamespace,
			change: func(x *lookups.Index) {
				put(x, "a/one", "old")
				put(x, "a/one", "k")
				put(x, "a/two", "k")
				put(x, "a/two", "new")
			},
			want: []string{"a/one"}, wantStats: lookups.Stats{Objects: 2, Pairs: 2},
		},
		"an object is removed": {
			definition: inNamespace,
			change:     func(x *lookups.Index) { put(x, "a/one", "k", "l"); x.Remove("a/one"); x.Remove("a/none") },
		},
		"an object loses its keys": {
			definition: inNamespace,
			change:     func(x *lookups.Index) { put(x, "a/one", "k"); put(x, "a/one") },
		},
		"an object fails in the namespace": {
			definition: inNamespace,
			change:     func(x *lookups.Index) { put(x, "a/one", "k"); x.Fail(ref("a/two"), failure) },
			wantErr:    "the lookup is incomplete: an object has no keys: a/two: no such key: spec",
			wantStats:  lookups.Stats{Objects: 1, Pairs: 1, LeftOut: 1, Example: "a/two: no such key: spec"},
		},
		"an object fails in another namespace": {
			definition: inNamespace,
			change:     func(x *lookups.Index) { put(x, "a/one", "k"); x.Fail(ref("b/two"), failure) },
			want:       []string{"a/one"},
			wantStats:  lookups.Stats{Objects: 1, Pairs: 1, LeftOut: 1, Example: "b/two: no such key: spec"},
		},
		"an object fails and is left out": {
			definition: inCluster,
			change:     func(x *lookups.Index) { put(x, "a/one", "k"); put(x, "a/two", "k"); x.Fail(ref("a/two"), failure) },
			want:       []string{"a/one"},
			wantStats:  lookups.Stats{Objects: 1, Pairs: 1, LeftOut: 1, Example: "a/two: no such key: spec"},
		},
		"a failure is corrected": {
			definition: inNamespace,
			change:     func(x *lookups.Index) { x.Fail(ref("a/one"), failure); put(x, "a/one", "k") },
			want:       []string{"a/one"}, wantStats: lookups.Stats{Objects: 1, Pairs: 1},
		},
		"a failure is deleted": {
			definition: inNamespace,
			change:     func(x *lookups.Index) { x.Fail(ref("a/one"), failure); x.Remove("a/one") },
		},
		"a list without an object removes it": {
			definition: inNamespace,
			change: func(x *lookups.Index) {
				put(x, "a/one", "k")
				put(x, "a/two", "k")
				x.Update(func(c *lookups.Changes) { c.BeginList() })
				put(x, "a/two", "k")
				put(x, "a/three", "k")
				x.Update(func(c *lookups.Changes) { c.EndList() })
			},
			want: []string{"a/three", "a/two"}, wantStats: lookups.Stats{Objects: 2, Pairs: 2},
		},
		"too many keys": {
			definition: inNamespace, limits: lookups.Limits{Pairs: 2},
			change:    func(x *lookups.Index) { put(x, "b/one", "k", "l"); put(x, "a/two", "k") },
			wantErr:   "the lookup is incomplete: it has more than 2 keys of objects",
			wantStats: lookups.Stats{Objects: 1, Pairs: 2, Incomplete: "it has more than 2 keys of objects"},
		},
		"too many keys in the namespace": {
			definition: inNamespace, limits: lookups.Limits{NamespacePairs: 1},
			change:  func(x *lookups.Index) { put(x, "a/one", "k"); put(x, "a/two", "k"); put(x, "b/one", "k") },
			wantErr: `the lookup is incomplete: the objects in namespace "a" have more than 1 keys`,
			wantStats: lookups.Stats{
				Objects: 1, Pairs: 1, Over: `the objects in namespace "a" have more than 1 keys`, OverNamespace: "a",
			},
		},
		"too many keys in another namespace": {
			definition: inNamespace, limits: lookups.Limits{NamespacePairs: 1},
			change: func(x *lookups.Index) { put(x, "b/one", "k"); put(x, "b/two", "k"); put(x, "a/one", "k") },
			want:   []string{"a/one"},
			wantStats: lookups.Stats{
				Objects: 1, Pairs: 1, Over: `the objects in namespace "b" have more than 1 keys`, OverNamespace: "b",
			},
		},
		"too many keys in another namespace, whose objects the request could find": {
			definition: inCluster, limits: lookups.Limits{NamespacePairs: 1},
			change:  func(x *lookups.Index) { put(x, "b/one", "k"); put(x, "b/two", "k"); put(x, "a/one", "k") },
			wantErr: `the lookup is incomplete: the objects in namespace "b" have more than 1 keys`,
			wantStats: lookups.Stats{
				Objects: 1, Pairs: 1, Over: `the objects in namespace "b" have more than 1 keys`, OverNamespace: "b",
			},
		},
		"objects without a namespace": {
			definition: inCluster, limits: lookups.Limits{NamespacePairs: 1},
			change: func(x *lookups.Index) {
				x.Put(lookups.Ref{UID: "1", Name: "one"}, lookups.Entry{Keys: []string{"k"}})
				x.Put(lookups.Ref{UID: "2", Name: "two"}, lookups.Entry{Keys: []string{"k"}})
			},
			want: []string{"/one", "/two"}, wantStats: lookups.Stats{Objects: 2, Pairs: 2},
		},
		"the objects of a namespace are released": {
			definition: inNamespace,
			change: func(x *lookups.Index) {
				put(x, "a/one", "k")
				put(x, "b/one", "k")
				x.Update(func(c *lookups.Changes) { c.Release("a", "they are too many") })
				put(x, "a/two", "k")
			},
			wantErr:   "the lookup is incomplete: they are too many",
			wantStats: lookups.Stats{Objects: 1, Pairs: 1, Over: "they are too many", OverNamespace: "a"},
		},
		"a list after a release": {
			definition: inNamespace,
			change: func(x *lookups.Index) {
				put(x, "a/one", "k")
				x.Update(func(c *lookups.Changes) {
					c.Release("a", "they are too many")
					c.BeginList()
					c.Put(ref("a/two"), lookups.Entry{Keys: []string{"k"}})
				})
				x.Update(func(c *lookups.Changes) { c.EndList() })
			},
			want: []string{"a/two"}, wantStats: lookups.Stats{Objects: 1, Pairs: 1},
		},
		"a later list within the limits": {
			definition: inNamespace, limits: lookups.Limits{Pairs: 3, NamespacePairs: 1},
			change: func(x *lookups.Index) {
				for _, object := range []string{"a/one", "b/one", "b/two", "c/one", "d/one", "e/one"} {
					put(x, object, "k")
				}
				x.Update(func(c *lookups.Changes) { c.BeginList() })
				put(x, "a/one", "k")
				x.Update(func(c *lookups.Changes) { c.EndList() })
			},
			want: []string{"a/one"}, wantStats: lookups.Stats{Objects: 1, Pairs: 1},
		},
		"a later list beyond the limits": {
			definition: inNamespace, limits: lookups.Limits{NamespacePairs: 1},
			change: func(x *lookups.Index) {
				for range 2 {
					x.Update(func(c *lookups.Changes) { c.BeginList() })
					put(x, "a/one", "k")
					put(x, "a/two", "k")
					x.Update(func(c *lookups.Changes) { c.EndList() })
				}
			},
			wantErr:   `the lookup is incomplete: the objects in namespace "a" have more than 1 keys`,
			wantStats: lookups.Stats{Over: `the objects in namespace "a" have more than 1 keys`, OverNamespace: "a"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := lookups.NewIndex(tc.definition, tc.limits)
			tc.change(x)
			got, err := x.Find(lookups.Query{Namespace: "a", Keys: []string{"k"}})
			if diff := gocmp.Diff(tc.want, names(got)); diff != "" {
				t.Error(diff)
			}
			if text := fmt.Sprint(err); tc.wantErr == "" && err != nil || tc.wantErr != "" && text != tc.wantErr {
				t.Errorf("got the error %s, want %q", text, tc.wantErr)
			}
			if diff := gocmp.Diff(tc.wantStats, x.Stats(), cmpopts.IgnoreFields(lookups.Stats{}, "Bytes")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKeeps: the keys of objects that are left out need not be computed until a list begins, which keeps them if they fit.
func TestKeeps(t *testing.T) {
	x := lookups.NewIndex(inCluster, lookups.Limits{NamespacePairs: 1})
	put(x, "a/one", "k")
	put(x, "b/one", "k")
	before := []bool{x.Keeps("a"), x.Keeps("b"), x.Keeps("c")}
	put(x, "a/two", "k")
	beyond := []bool{x.Keeps("a"), x.Keeps("b"), x.Keeps("c")}
	x.Update(func(c *lookups.Changes) { c.BeginList() })
	list := x.Keeps("a")
	put(x, "a/one", "k")
	x.Update(func(c *lookups.Changes) { c.EndList() })
	got := [][]bool{before, beyond, {list, x.Keeps("a")}}
	if diff := gocmp.Diff([][]bool{{true, true, true}, {false, true, true}, {true, true}}, got); diff != "" {
		t.Error(diff)
	}
}

// TestMemoryIsReturned: a namespace without objects uses none.
func TestMemoryIsReturned(t *testing.T) {
	x := lookups.NewIndex(inNamespace, lookups.Limits{})
	for i := range 100 {
		put(x, fmt.Sprintf("a/%d", i), "k", fmt.Sprint(i))
		x.Fail(ref(fmt.Sprintf("b/%d", i)), errors.New("x"))
	}
	if a, b := x.NamespaceBytes("a"), x.NamespaceBytes("b"); a < 100*100 || b < 100*100 || a+b != x.Stats().Bytes {
		t.Errorf("%d and %d bytes are counted, %d in all", a, b, x.Stats().Bytes)
	}
	for i := range 100 {
		x.Remove(fmt.Sprintf("a/%d", i))
	}
	x.Update(func(c *lookups.Changes) { c.Release("b", "it is full") })
	if a, b := x.NamespaceBytes("a"), x.NamespaceBytes("b"); a != 0 || b != 0 || x.Stats().Bytes != 0 {
		t.Errorf("%d and %d bytes are left, %d in all", a, b, x.Stats().Bytes)
	}
}

// model is an index that is easy to read.
type model map[string][]string

func (m model) find(q lookups.Query, scope v1alpha1.LookupScope) (out []string) {
	for object, keys := range m {
		if scope == v1alpha1.LookupScopeNamespace && ref(object).Namespace != q.Namespace || object == q.Own.UID {
			continue
		}
		count := 0
		for _, key := range keys {
			if slices.Contains(q.Keys, key) {
				count++
			}
		}
		want := map[v1alpha1.LookupMatch]int{v1alpha1.LookupMatchAllRequestKeys: len(q.Keys), v1alpha1.LookupMatchAllStoredKeys: len(keys)}
		if count > 0 && count >= want[q.Match] {
			out = append(out, object)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(strings.Compare(ref(a).Namespace, ref(b).Namespace), strings.Compare(ref(a).Name, ref(b).Name))
	})
	return out
}

// TestRandomChanges: after random changes, the index finds what a scan of all objects finds.
func TestRandomChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func(n int) (keys []string) {
		for i := range 6 {
			if random.IntN(6) < n {
				keys = append(keys, fmt.Sprint(i))
			}
		}
		return keys
	}
	matches := []v1alpha1.LookupMatch{v1alpha1.LookupMatchAny, v1alpha1.LookupMatchAllRequestKeys, v1alpha1.LookupMatchAllStoredKeys}
	for _, d := range []lookups.Definition{inNamespace, inCluster} {
		x, m := lookups.NewIndex(d, lookups.Limits{}), model{}
		found := 0
		for range 10_000 {
			object := fmt.Sprintf("%d/%d", random.IntN(3), random.IntN(60))
			if keys := some(2); random.IntN(3) == 0 || len(keys) == 0 {
				x.Remove(object)
				delete(m, object)
			} else {
				put(x, object, keys...)
				m[object] = keys
			}
			q := lookups.Query{
				Namespace: fmt.Sprint(random.IntN(3)), Keys: some(3), Match: matches[random.IntN(3)],
				Own: lookups.Own{UID: fmt.Sprintf("%d/%d", random.IntN(3), random.IntN(60))},
			}
			got, err := x.Find(q)
			if err != nil {
				t.Fatal(err)
			}
			want := m.find(q, d.Scope)
			if diff := gocmp.Diff(want, names(got)); diff != "" {
				t.Fatalf("%+v: %s", q, diff)
			}
			found += len(want)
		}
		if found < 10_000 {
			t.Errorf("only %d objects were found", found)
		}
	}
}

// TestViews: a view does not change, also while the index changes.
func TestViews(t *testing.T) {
	x := lookups.NewIndex(inCluster, lookups.Limits{})
	for i := range 500 {
		put(x, fmt.Sprintf("n/%d", i), "k")
	}
	view := x.View()
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for range 200 {
				got, err := view.Find(lookups.Query{Keys: []string{"k"}})
				if err != nil || len(got.Values) != 500 {
					t.Errorf("got %d objects, %v", len(got.Values), err)
				}
				if _, err := x.Find(lookups.Query{Keys: []string{"k"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 500 {
		x.Remove(fmt.Sprintf("n/%d", i))
	}
	readers.Wait()
	if before, after := view.Revision, x.View().Revision; after <= before {
		t.Errorf("the revision was %d and is %d", before, after)
	}
	last := x.View().Revision
	put(x, "n/none")
	if got := x.View().Revision; got != last {
		t.Errorf("the revision was %d and is %d, but nothing changed", last, got)
	}
}

// TestBytes: an index uses at most 180 bytes for each pair above the strings, and at most what it counts.
func TestBytes(t *testing.T) {
	const objects = 100_000
	entries, refs, text := make([]lookups.Entry, objects), make([]lookups.Ref, objects), int64(0)
	for i := range entries {
		refs[i] = lookups.Ref{
			UID:       fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i),
			Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("ingress-%d", i),
		}
		key := fmt.Sprintf("host-%d.example.com", i*7919%objects)
		entries[i].Keys = []string{key}
		text += int64(len(refs[i].Namespace) + len(refs[i].Name))
	}
	before := heap()
	x := lookups.NewIndex(inCluster, lookups.Limits{})
	for i := range entries {
		x.Put(refs[i], entries[i])
	}
	used := heap() - before
	perPair := (used - text) / objects
	if perPair > 180 {
		t.Errorf("%d bytes for each pair above the strings", perPair)
	}
	if counted := x.Stats().Bytes; used > counted {
		t.Errorf("%d bytes are used, and %d counted", used, counted)
	}
	t.Logf("%d bytes for each pair above the strings", perPair)
	runtime.KeepAlive(x)
	runtime.KeepAlive(refs)
	runtime.KeepAlive(entries)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkPut(b *testing.B) {
	x := lookups.NewIndex(inCluster, lookups.Limits{})
	for i := 0; b.Loop(); i++ {
		put(x, fmt.Sprintf("n/%d", i%100_000), fmt.Sprintf("host-%d", i))
	}
}

func BenchmarkFind(b *testing.B) {
	x := lookups.NewIndex(inCluster, lookups.Limits{})
	for i := range 100_000 {
		put(x, fmt.Sprintf("n/%d", i), fmt.Sprintf("host-%d", i))
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		if _, err := x.Find(lookups.Query{Keys: []string{fmt.Sprintf("host-%d", i%100_000)}}); err != nil {
			b.Fatal(err)
		}
	}
}
