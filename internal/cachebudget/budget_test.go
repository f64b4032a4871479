package cachebudget

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// recorder is a cache that remembers what was released.
type recorder struct {
	*Cache
	released map[string]Excess
}

func open(b *Budget, name string) *recorder {
	r := &recorder{released: map[string]Excess{}}
	r.Cache = b.Open(name, func(namespace string, why Excess) { r.released[namespace] = why })
	return r
}

// TestLimits uses a total of 800 bytes, so that the share of a namespace is 100.
func TestLimits(t *testing.T) {
	type step struct {
		cache     int
		namespace string
		bytes     int64
		wantKept  bool
	}
	tests := map[string]struct {
		steps []step
		want  []map[string]Excess // by cache
		used  map[string]int64
	}{
		"within the share": {
			steps: []step{{0, "a", 60, true}, {0, "a", 40, true}, {0, "b", 100, true}},
			used:  map[string]int64{"0": 200},
		},
		"beyond the share": {
			steps: []step{{0, "a", 60, true}, {0, "b", 60, true}, {0, "a", 41, false}, {0, "a", 1, false}},
			want:  []map[string]Excess{{"a": {Used: 101, Limit: 100}}},
			used:  map[string]int64{"0": 60},
		},
		"the first object is beyond the share": {
			steps: []step{{0, "a", 101, false}, {0, "b", 1, true}},
			want:  []map[string]Excess{{"a": {Used: 101, Limit: 100}}},
			used:  map[string]int64{"0": 1},
		},
		"a removed object makes room": {
			steps: []step{{0, "a", 100, true}, {0, "a", -50, true}, {0, "a", 50, true}},
			used:  map[string]int64{"0": 100},
		},
		"the largest cache of the namespace is released": {
			steps: []step{{0, "a", 90, true}, {1, "a", 10, true}, {1, "a", 1, true}},
			want:  []map[string]Excess{{"a": {Used: 90, Limit: 100}}},
			used:  map[string]int64{"0": 0, "1": 11},
		},
		"objects without a namespace have four shares": {
			steps: []step{{0, "", 400, true}, {0, "a", 100, true}},
			used:  map[string]int64{"0": 500},
		},
		"the largest namespace gives way at the total": {
			steps: []step{
				{0, "a", 99, true}, {0, "b", 100, true}, {0, "c", 98, true}, {0, "d", 98, true}, {0, "e", 98, true},
				{0, "f", 98, true}, {0, "g", 98, true}, {0, "h", 98, true}, {0, "small", 20, true},
			},
			want: []map[string]Excess{{"b": {Used: 100, Limit: 800, Total: true}}},
			used: map[string]int64{"0": 707},
		},
		"tenants do not displace objects without a namespace": {
			steps: []step{
				{0, "", 300, true}, {0, "a", 90, true}, {0, "b", 90, true}, {0, "c", 90, true}, {0, "d", 90, true},
				{0, "e", 90, true}, {0, "f", 91, false},
			},
			want: []map[string]Excess{{"f": {Used: 91, Limit: 800, Total: true}}},
			used: map[string]int64{"0": 750},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := New(800)
			caches := []*recorder{open(b, "0"), open(b, "1")}
			for i, s := range tc.steps {
				if kept := caches[s.cache].Add(s.namespace, s.bytes); kept != s.wantKept {
					t.Errorf("step %d: kept = %t, want %t", i, kept, s.wantKept)
				}
			}
			for i, c := range caches {
				var want map[string]Excess
				if i < len(tc.want) {
					want = tc.want[i]
				}
				if !maps.Equal(want, c.released) {
					t.Errorf("cache %d released %v, want %v", i, c.released, want)
				}
			}
			used := b.Used()
			maps.DeleteFunc(used, func(_ string, bytes int64) bool { return bytes == 0 })
			maps.DeleteFunc(tc.used, func(_ string, bytes int64) bool { return bytes == 0 })
			if diff := gocmp.Diff(tc.used, used); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSmallNamespacesAreKept fills a budget from many greedy namespaces: no number of them
// displaces one that uses at most the total, divided by the number of namespaces.
func TestSmallNamespacesAreKept(t *testing.T) {
	const greedy, fair = 400, 1 << 20 / (400 + 1)
	b := New(1 << 20)
	c := open(b, "c")
	if !c.Add("small", fair) {
		t.Fatal("the small namespace is over its limit alone")
	}
	for i := range 100 * greedy {
		c.Add(fmt.Sprintf("greedy-%d", i%greedy), 100+int64(i%977))
	}
	if why, ok := c.released["small"]; ok {
		t.Errorf("the small namespace was released: %+v", why)
	}
	if !c.Add("small", -fair) || !c.Add("small", fair) {
		t.Error("the small namespace cannot change its objects")
	}
	if !c.Add("late", fair) {
		t.Error("a small namespace that comes late is not kept")
	}
}

func TestReadmit(t *testing.T) {
	b := New(800)
	c := open(b, "c")
	c.Add("a", 101)
	if c.Fits("a", 101) || !c.Fits("a", 100) {
		t.Error("Fits() disagrees with the share")
	}
	if c.Add("a", 1) {
		t.Error("a namespace over its limit is kept before it is readmitted")
	}
	c.Readmit("a")
	if !c.Add("a", 100) {
		t.Error("a readmitted namespace is not kept")
	}
	c.Exclude("a", 1000)
	if c.released["a"] != (Excess{Used: 1100, Limit: 100}) || c.Add("a", 1) {
		t.Errorf("Exclude() released %+v", c.released["a"])
	}
}

// TestReplaced checks that two versions of one cache do not exceed a share together.
func TestReplaced(t *testing.T) {
	b := New(800)
	before, after := open(b, "c"), open(b, "c")
	before.Add("a", 80)
	before.SetReplaced(true)
	if !after.Add("a", 90) || len(before.released) > 0 {
		t.Error("a cache that is being replaced counts in the share")
	}
	if used := b.Used()["c"]; used != 170 {
		t.Errorf("used = %d, want 170: a cache that is being replaced counts in the total", used)
	}
	before.SetReplaced(false) // it is needed again
	if after.Add("a", 1); len(after.released) != 1 || len(before.released) != 0 {
		t.Errorf("released %v and %v, want the larger cache", before.released, after.released)
	}
	before.SetReplaced(true)
	after.Readmit("a")
	after.Add("a", 90)
	before.Close()
	if used := b.Used()["c"]; used != 90 || before.Add("a", 1) {
		t.Errorf("used = %d after Close, want 90", used)
	}
}

// model does the same as a Budget, with a sort for each decision.
type model struct {
	total int64
	used  map[[2]string]int64 // by cache and namespace
	over  map[[2]string]bool
}

func (m *model) sum(match func(key [2]string) bool) (sum int64) {
	for key, bytes := range m.used {
		if match(key) {
			sum += bytes
		}
	}
	return sum
}

func (m *model) ofNamespace(namespace string) int64 {
	return m.sum(func(key [2]string) bool { return key[1] == namespace })
}

func (m *model) evictLargest(namespace string) {
	keys := slices.SortedFunc(maps.Keys(m.used), func(a, b [2]string) int { return cmp.Compare(m.used[b], m.used[a]) })
	for _, key := range keys {
		if key[1] == namespace {
			m.used[key], m.over[key] = 0, true
			return
		}
	}
}

func (m *model) add(key [2]string, bytes int64) bool {
	if m.over[key] {
		return false
	}
	m.used[key] += bytes
	for bytes > 0 && m.ofNamespace(key[1]) > m.total/8 {
		m.evictLargest(key[1])
	}
	for bytes > 0 && m.sum(func([2]string) bool { return true }) > m.total {
		namespaces := map[string]bool{}
		for k := range m.used {
			namespaces[k[1]] = true
		}
		sorted := slices.SortedFunc(maps.Keys(namespaces), func(a, b string) int {
			return cmp.Or(cmp.Compare(m.ofNamespace(b), m.ofNamespace(a)), cmp.Compare(a, b))
		})
		m.evictLargest(sorted[0])
	}
	return !m.over[key]
}

// TestRandom compares random steps with the model, and checks the limits after each.
func TestRandom(t *testing.T) {
	const total = 1 << 16
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := New(total)
		caches := map[string]*recorder{"x": open(b, "x"), "y": open(b, "y"), "z": open(b, "z")}
		m := &model{total: total, used: map[[2]string]int64{}, over: map[[2]string]bool{}}
		for i := range 3000 {
			key := [2]string{string('x' + rune(random.IntN(3))), fmt.Sprintf("n%02d", random.IntN(20))}
			bytes := 1 + random.Int64N(900)*random.Int64N(4) + int64(i) // no two holdings are equal
			switch random.IntN(10) {
			case 0:
				bytes = -random.Int64N(m.used[key] + 1)
			case 1:
				if m.over[key] {
					caches[key[0]].Readmit(key[1])
					m.over[key] = false
				}
			}
			if got, want := caches[key[0]].Add(key[1], bytes), m.add(key, bytes); got != want {
				t.Fatalf("seed %d, step %d: Add(%v, %d) = %t, want %t", seed, i, key, bytes, got, want)
			}
			checkSums(t, b, m)
		}
	}
}

func checkSums(t *testing.T, b *Budget, m *model) {
	t.Helper()
	var all int64
	for name, bytes := range b.Used() {
		if want := m.sum(func(key [2]string) bool { return key[0] == name }); bytes != want {
			t.Fatalf("cache %s uses %d, want %d", name, bytes, want)
		}
		all += bytes
	}
	if all > m.total || b.used != all {
		t.Fatalf("%d bytes are used, counted as %d: the total is %d", all, b.used, m.total)
	}
}

// TestConcurrentCaches checks that nothing stays counted after all caches have closed.
func TestConcurrentCaches(t *testing.T) {
	b := New(8000)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			c := b.Open("c", func(string, Excess) {})
			for j := range 2000 {
				namespace := fmt.Sprint((i + j) % 5)
				if !c.Add(namespace, int64(j%300)) {
					c.Readmit(namespace)
				}
			}
			c.Close()
		})
	}
	running.Wait()
	if b.used != 0 || len(b.owners) != 0 || len(b.caches) != 0 {
		t.Errorf("after all caches have closed: %d bytes, %d namespaces, %d caches", b.used, len(b.owners), len(b.caches))
	}
}
