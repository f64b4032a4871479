package params

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

func gvkOf(t *testing.T, kind admissionregistrationv1.ParamKind) schema.GroupVersionKind {
	t.Helper()
	gvk, err := parse(&kind)
	if err != nil {
		t.Fatal(err)
	}
	return gvk
}

// addLarge adds ConfigMaps of one million bytes, and removes them after the test: others
// read every ConfigMap.
func addLarge(t *testing.T, namespace string, n int) {
	t.Helper()
	t.Cleanup(func() {
		if err := admin(t).CoreV1().ConfigMaps(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{},
			metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	for i := range n {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "large-"},
			Data:       map[string]string{"x": strings.Repeat(fmt.Sprint(i%10), 1_000_000)},
		}
		if _, err := admin(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestObjectsOfOthersAreNotKept has a policy whose paramRef names one object, and a tenant
// with 60 MB of ConfigMaps elsewhere, 20 MB in the short form.
func TestObjectsOfOthersAreNotKept(t *testing.T) {
	tenant, platform := newNamespace(t), newNamespace(t)
	megabytes := 60
	if testing.Short() {
		megabytes = 20
	}
	addLarge(t, tenant, megabytes)
	addConfigMap(t, platform, "limits", nil)
	s := newStore(t, "")
	before := heapInUse()
	s.Want(needsOf(configMaps, ref(platform, "limits")))
	synced(t, s, configMaps)
	if used := s.options.Memory.budget.Used()["params"]; used == 0 || used > 8<<10 {
		t.Errorf("one small object is counted as %d bytes", used)
	}
	if grown := heapInUse() - before; grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	got, err := s.ReadParams(t.Context(), needsOf(configMaps, ref(platform, "limits", denying))[0], tenant)
	if err != nil || len(got) != 1 {
		t.Errorf("%d params, %v, want 1", len(got), err)
	}
}

// smallStore returns a store in which a namespace can have 2 MiB.
func smallStore(t *testing.T) *Store {
	t.Helper()
	s := newStore(t, "")
	s.options.Memory = NewMemory(cachebudget.New(16<<20), nil)
	s.options.Memory.retryInterval = 100 * time.Millisecond
	return s
}

// peak samples the use of the budget until ctx ends.
func peak(ctx context.Context, s *Store) *atomic.Int64 {
	var most atomic.Int64
	go func() {
		for ctx.Err() == nil {
			most.Store(max(most.Load(), s.options.Memory.budget.Used()["params"]))
			time.Sleep(time.Millisecond)
		}
	}()
	return &most
}

// TestNamespaceOverItsShare has a namespace with too many params before the first list. Its
// requests are errors, those of others are not, and it recovers.
func TestNamespaceOverItsShare(t *testing.T) {
	greedy, small := newNamespace(t), newNamespace(t)
	addLarge(t, greedy, 20)
	addConfigMap(t, greedy, "settings", map[string]string{"test": greedy})
	addConfigMap(t, small, "settings", map[string]string{"test": greedy})
	s := smallStore(t)
	most := peak(t.Context(), s)
	before := heapInUse()
	s.Want(whole(configMaps))
	synced(t, s, configMaps)
	if most.Load() > 16<<20 {
		t.Errorf("the first list used %d bytes, want at most 16 MiB", most.Load())
	}
	if grown := heapInUse() - before; grown > 24<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	want := regexp.MustCompile(`^namespace ` + greedy +
		` has at least 19\.\d MiB of objects of kind ConfigMap in v1 that policy params can select, more than its share of ` +
		`2\.0 MiB: delete some, narrow paramRef\.selector, or raise --max-cache-memory$`)
	for _, r := range []*admissionregistrationv1.ParamRef{
		ref("", "settings"), ref("", "none"), ref("", "", selecting(map[string]string{"test": "none"})),
		ref(greedy, "settings"),
	} {
		if got, err := s.Params(t.Context(), &configMaps, r, greedy); err == nil || !want.MatchString(err.Error()) || got != nil {
			t.Errorf("Params(%v) = %v, %v", r, got, err)
		}
	}
	got, err := s.Params(t.Context(), &configMaps, ref("", "", selecting(map[string]string{"test": greedy}), denying), small)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{small + "/settings"}, names(t, got)); diff != "" {
		t.Errorf("params of another namespace (-want +got):\n%s", diff)
	}
	wantExcess := "failurePolicy decides requests that read params in these namespaces: " + greedy +
		": they have too many objects of kind ConfigMap in v1: delete some, narrow paramRef.selector, or raise --max-cache-memory"
	if excess := s.Excess(&configMaps); !strings.Contains(excess, greedy) ||
		!strings.HasPrefix(excess, wantExcess[:40]) || !strings.HasSuffix(excess, wantExcess[len(wantExcess)-60:]) {
		t.Errorf("Excess() = %q", excess)
	}
	if ok, problem := s.State(&configMaps); !ok || problem != "" {
		t.Errorf("State() = %t, %q: other namespaces can be read", ok, problem)
	}
	shrink := func() {
		t.Helper()
		if err := admin(t).CoreV1().ConfigMaps(greedy).DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: "!test"}); err != nil {
			t.Fatal(err)
		}
		NewWithT(t).Eventually(func() ([]string, error) {
			got, err := s.Params(t.Context(), &configMaps, ref("", "settings"), greedy)
			return names(t, got), err
		}).WithTimeout(eventually).WithPolling(pause).Should(Equal([]string{greedy + "/settings"}))
	}
	shrink()
	addLarge(t, greedy, 3) // while it is watched
	NewWithT(t).Eventually(func() string {
		_, err := s.Params(t.Context(), &configMaps, ref("", "settings"), greedy)
		return textOf(err)
	}).WithTimeout(eventually).WithPolling(pause).Should(ContainSubstring("more than its share of 2.0 MiB"))
	shrink()
}

// TestManyNamespacesShareTheBudget fills the budget from namespaces that are within their
// share.
func TestManyNamespacesShareTheBudget(t *testing.T) {
	label := map[string]string{"total": "true"}
	small := newNamespace(t)
	var greedy []string
	for range 12 {
		greedy = append(greedy, newNamespace(t))
		addLabelled(t, greedy[len(greedy)-1], 1_500_000/2, label)
		addLabelled(t, greedy[len(greedy)-1], 1_500_000/2, label)
	}
	addConfigMap(t, small, "settings", label)
	s := smallStore(t)
	most := peak(t.Context(), s)
	all := ref("", "", selecting(label))
	s.Want(needsOf(configMaps, all))
	synced(t, s, configMaps)
	if most.Load() > 16<<20 {
		t.Errorf("the budget of 16 MiB was exceeded: %d", most.Load())
	}
	if got, err := s.Params(t.Context(), &configMaps, all, small); err != nil || len(got) != 1 {
		t.Errorf("a small namespace has %d params, %v", len(got), err)
	}
	errs := 0
	for _, namespace := range greedy {
		got, err := s.Params(t.Context(), &configMaps, all, namespace)
		switch {
		case err == nil && len(got) != 2:
			t.Errorf("namespace %s has %d params without an error", namespace, len(got))
		case err != nil:
			errs++
			if !strings.Contains(err.Error(), "more than any other, and all together exceed 16.0 MiB") {
				t.Errorf("error %q", err)
			}
		}
	}
	if errs == 0 || errs > 4 {
		t.Errorf("%d of %d namespaces are left out, want those that exceed 16 MiB", errs, len(greedy))
	}
}

func addLabelled(t *testing.T, namespace string, size int, labels map[string]string) {
	t.Helper()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "c-", Labels: labels},
		Data:       map[string]string{"x": strings.Repeat("x", size)},
	}
	if _, err := admin(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestPartsOfParams checks that a watch keeps what expressions read, and that a policy which
// reads more does not disturb others.
func TestPartsOfParams(t *testing.T) {
	namespace := newNamespace(t)
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{"note": strings.Repeat("n", 100_000)}},
		Data:       map[string]string{"max": "3", "other": strings.Repeat("x", 500_000)},
	}
	if _, err := admin(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "")
	narrow, wide := needsOf(configMaps, ref(namespace, "c", denying))[0], needsOf(configMaps, ref(namespace, "c", denying))[0]
	identity := unstructuredjson.Path("apiVersion").
		Union(unstructuredjson.Path("kind")).
		Union(unstructuredjson.Path("metadata", "name")).
		Union(unstructuredjson.Path("metadata", "namespace"))
	narrow.Reads = unstructuredjson.Path("data", "max").Union(identity)
	s.Want([]policy.ParamNeed{narrow})
	synced(t, s, configMaps)
	if used := s.options.Memory.budget.Used()["params"]; used > 8<<10 {
		t.Errorf("data.max is counted as %d bytes", used)
	}
	got, err := s.ReadParams(t.Context(), narrow, "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": "c", "namespace": namespace},
		"data":       map[string]any{"max": "3"},
	}
	if diff := cmp.Diff(want, got[0].(*unstructured.Unstructured).Object); diff != "" {
		t.Errorf("param (-want +got):\n%s", diff)
	}
	first := watchOf(t, s, configMaps)
	s.Want([]policy.ParamNeed{narrow, wide})
	if got := s.find(first.gvk, narrow); got != first {
		t.Error("a policy that reads more makes others wait")
	}
	if got := s.find(first.gvk, wide); got == first {
		t.Error("a policy reads params from a watch without all parts")
	}
	synced(t, s, configMaps)
	if got, err = s.ReadParams(t.Context(), wide, ""); err != nil {
		t.Fatal(err)
	}
	if note, _, _ := unstructured.NestedString(got[0].(*unstructured.Unstructured).Object, "metadata", "annotations",
		"note"); len(note) != 100_000 {
		t.Errorf("the annotation has %d bytes", len(note))
	}
	NewWithT(t).Eventually(first.wanted).WithTimeout(eventually).WithPolling(pause).Should(BeFalse(), "the replaced watch continues")
}

// TestAddedScope checks that a further scope neither restarts nor ends other watches, and that
// merged ones serve requests until the merged list is complete.
func TestAddedScope(t *testing.T) {
	namespace := newNamespace(t)
	addConfigMap(t, namespace, "c0", nil)
	s := newStore(t, "")
	var refs []*admissionregistrationv1.ParamRef
	for i := range maxWatchesOfKind {
		refs = append(refs, ref(namespace, fmt.Sprint("c", i), denying))
	}
	s.Want(needsOf(configMaps, refs[:1]...))
	synced(t, s, configMaps)
	first := watchOf(t, s, configMaps)
	s.Want(needsOf(configMaps, refs...))
	need := needsOf(configMaps, refs[0])[0]
	if s.find(first.gvk, need) != first || !first.complete() {
		t.Error("a further scope restarted a watch")
	}
	synced(t, s, configMaps)
	s.Want(needsOf(configMaps, append(refs, ref(namespace, "more"))...)) // one more than the maximum
	for range 100 {
		if got, err := s.ReadParams(t.Context(), need, ""); err != nil || len(got) != 1 {
			t.Fatalf("while watches are merged: %d params, %v", len(got), err)
		}
	}
	synced(t, s, configMaps)
	NewWithT(t).Eventually(first.wanted).WithTimeout(eventually).WithPolling(pause).Should(BeFalse(), "a merged watch continues")
	if got, err := s.ReadParams(t.Context(), need, ""); err != nil || len(got) != 1 {
		t.Errorf("after watches are merged: %d params, %v", len(got), err)
	}
	watchOf(t, s, configMaps) // the only one
}

// TestObjectThatIsTooLarge checks that an object whose decoded form needs too much memory
// excludes its namespace alone, and that a later version of it is kept again.
func TestObjectThatIsTooLarge(t *testing.T) {
	m := NewMemory(cachebudget.New(1<<30), nil)
	s := newObjectStore(m.budget, "params", func(namespace string, why cachebudget.Excess) error {
		return fmt.Errorf("%s: %d of %d", namespace, why.Used, why.Limit)
	}, func() {})
	object := func(namespace, list string) *item {
		raw := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"o","resourceVersion":"7"},"list":[%s]}`, namespace, list)
		o, err := m.decode([]byte(raw), policy.WholeParams(), schema.GroupVersionKind{Version: "v1", Kind: "Rule"})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	large := strings.TrimSuffix(strings.Repeat("{},", 1<<19), ",")
	fill := func(list string) {
		s.beginList()
		s.put(object("a", list))
		s.put(object("b", ""))
		if err := s.Replace(nil, "7"); err != nil {
			t.Fatal(err)
		}
	}
	fill(large)
	if err := s.excess("a"); textOf(err) != fmt.Sprintf("a: %d of %d", maxTree, 1<<27) {
		t.Errorf("namespace with the object: %v", err)
	}
	if err := s.excess("b"); err != nil || s.size() != 1 {
		t.Errorf("another namespace: %v, %d objects", err, s.size())
	}
	if m.trees.Held() != 0 {
		t.Errorf("%d bytes are held after decoding", m.trees.Held())
	}
	s.retryList(s.excludedAfter("", excludedAtOnce))
	fill("{}")
	if err := s.excess("a"); err != nil || s.size() != 2 {
		t.Errorf("after the object is small: %v, %d objects", err, s.size())
	}
	s.cache.Close()
	if used := m.budget.Used(); len(used) != 0 {
		t.Errorf("%v is counted after the store was closed", used)
	}
}

// TestListsAgain checks what a list leaves in a store that has objects of an earlier one.
func TestListsAgain(t *testing.T) {
	m := NewMemory(cachebudget.New(8000*entryCost), nil)
	s := newObjectStore(m.budget, "params",
		func(namespace string, _ cachebudget.Excess) error { return fmt.Errorf("%s", namespace) }, func() {})
	object := func(namespace, name, version string) *item {
		raw := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"resourceVersion":%q}}`, namespace, name, version)
		o, err := m.decode([]byte(raw), policy.WholeParams(), schema.GroupVersionKind{Version: "v1", Kind: "Rule"})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	lists := func(objects ...*item) {
		s.beginList()
		for _, o := range objects {
			s.put(o)
		}
	}
	lists(object("a", "x", "1"), object("a", "y", "1"), object("b", "z", "1")) // and fails
	lists(object("a", "x", "2"), object("c", "z", "1"))
	if s.isSynced || s.size() != 4 {
		t.Errorf("before the end of the first list: %d objects, synced: %t", s.size(), s.isSynced)
	}
	if err := s.Replace(nil, "2"); err != nil {
		t.Fatal(err)
	}
	before := s.hash()
	if !s.isSynced || s.size() != 2 || len(s.groups) != 2 || s.lastVersion() != "2" {
		t.Errorf("after a list: %d objects of %d namespaces", s.size(), len(s.groups))
	}
	if err := s.Update(object("a", "x", "3")); err != nil {
		t.Fatal(err)
	}
	if s.hash() == before {
		t.Error("the hash does not change with an object")
	}
	for _, o := range []*item{object("a", "x", "4"), object("c", "z", "4"), object("d", "none", "4")} {
		if err := s.Delete(o); err != nil {
			t.Fatal(err)
		}
	}
	if used := m.budget.Used()["params"]; used != 0 || s.size() != 0 || len(s.groups) != 0 {
		t.Errorf("without objects: %d bytes are counted, %d namespaces", used, len(s.groups))
	}
}
