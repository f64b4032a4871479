package lookups

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/sensitive"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// thing is an object that an API server has: with a key, and with a text that makes it large.
type thing struct{ namespace, name, key, text string }

func (o thing) raw(version int) string {
	return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"key":%q,"text":%q}}`,
		o.namespace, o.name, o.namespace+"/"+o.name, version, o.key, o.text)
}

// server is an API server with one resource.
type server struct {
	mu      sync.Mutex
	things  []thing
	count   int // of further things: number i is in namespace tenant with the key "k<i>"
	version int
	changes chan struct{} // closed by each change
	events  []string
	status  *metav1.Status // of each request, if it is set
	isAway  bool           // no such resource
	silent  bool           // watches deliver nothing
	lists   int
	accepts map[string]int
}

func newServer(things ...thing) *server {
	return &server{things: things, version: 1, changes: make(chan struct{}), accepts: map[string]int{}}
}

// change changes the state, and sends an event of an object, if there is one.
func (s *server) change(edit func(), kind string, o thing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit()
	s.version++
	if kind != "" {
		s.events = append(s.events, fmt.Sprintf(`{"type":%q,"object":%s}`, kind, o.raw(s.version)))
	}
	close(s.changes)
	s.changes = make(chan struct{})
}

// ServerResourcesForGroupVersionWithContext implements Discovery.
func (s *server) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAway {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "")
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "things", Kind: "Thing", Namespaced: true}, {Name: "roots", Kind: "Root"}, {Name: "secrets", Kind: "Secret", Namespaced: true},
	}}, nil
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.accepts[r.Header.Get("Accept")]++
	status := s.status
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch q := r.URL.Query(); {
	case status != nil:
		w.WriteHeader(int(status.Code))
		status.Kind, status.APIVersion = "Status", "v1"
		_ = json.NewEncoder(w).Encode(status)
	case q.Get("watch") != "":
		s.watch(w, r)
	default:
		s.list(w, r)
	}
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	if limit > 1 && from == 0 {
		s.lists++
	}
	all := len(s.things) + s.count
	to := min(from+limit, all)
	_, _ = fmt.Fprint(w, `{"items":[`)
	for i := from; i < to; i++ {
		o := thing{namespace: "tenant", name: fmt.Sprintf("t%d", i), key: fmt.Sprintf("k%d", i)}
		if i < len(s.things) {
			o = s.things[i]
		}
		if i > from {
			_, _ = fmt.Fprint(w, ",")
		}
		_, _ = fmt.Fprint(w, o.raw(1))
	}
	next := ""
	if to < all {
		next = strconv.Itoa(to)
	}
	_, _ = fmt.Fprintf(w, `],"metadata":{"resourceVersion":"%d","continue":%q}}`, s.version, next)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for sent := 0; ; {
		s.mu.Lock()
		changes, silent := s.changes, s.silent
		var events []string
		if !silent {
			events = s.events[min(sent, len(s.events)):]
		}
		s.mu.Unlock()
		for _, event := range events {
			_, _ = fmt.Fprintln(w, event)
		}
		sent += len(events)
		w.(http.Flusher).Flush()
		select {
		case <-changes:
		case <-r.Context().Done():
			return
		}
	}
}

// start returns a store that reads from a server.
func (s *server) start(t *testing.T, edit func(*Options)) *Store {
	t.Helper()
	web := httptest.NewServer(s)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: web.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		REST: client.CoreV1().RESTClient(), Account: "ostiary-system/ostiary-lookups", Discovery: s, Entries: 200_000, Memory: 64 << 20,
		MaxAge: time.Hour, Log: logr.Discard(),
	}
	if edit != nil {
		edit(&o)
	}
	store := New(o)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Start(ctx) })
	t.Cleanup(func() {
		stop()
		web.CloseClientConnections()
		running.Wait()
		web.Close()
	})
	return store
}

func programOf(t *testing.T, l v1alpha1.Lookup) *lookups.Program {
	t.Helper()
	if l.Resource.Resource == "" {
		l.Resource.Resource = "things"
	}
	l.Name, l.RequestKeys, l.Resource.Version = "found", "[object.key]", "v1"
	if l.StoredKeys == "" {
		l.StoredKeys = "[stored.spec.key]"
	}
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.WebhookPolicySpec{
		Lookups: []v1alpha1.Lookup{l}, Validations: []v1alpha1.Validation{{Expression: "lookups.found.size() == 0"}},
	}}
	compiled, errs := policy.NewCompiler().Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return compiled.LookupNeeds()[0]
}

// find returns the names of the objects with a key, or an error.
func find(s *Store, p *lookups.Program, namespace, key string) (string, error) {
	found, err := s.Lookup(context.Background(), p, lookups.Query{Keys: []string{key}, Namespace: namespace})
	var names []string
	for _, v := range found.Values {
		names = append(names, v.Name)
	}
	return strings.Join(names, " "), err
}

func eventually(t *testing.T, check func(g Gomega)) {
	t.Helper()
	NewWithT(t).Eventually(check, 5*time.Minute, 10*time.Millisecond).Should(Succeed())
}

// wantFound waits until the objects with a key are those with some names.
func wantFound(t *testing.T, s *Store, p *lookups.Program, namespace, key, want string) {
	t.Helper()
	eventually(t, func(g Gomega) {
		got, err := find(s, p, namespace, key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(want))
	})
}

// wantError waits until lookups are errors with a text.
func wantError(t *testing.T, s *Store, p *lookups.Program, namespace, want string) {
	t.Helper()
	eventually(t, func(g Gomega) {
		_, err := find(s, p, namespace, "k")
		g.Expect(err).To(MatchError(ContainSubstring(want)))
	})
}

func unready(s *Store) string {
	var r versionskew.Report
	s.Report(&r)
	return r.Unready
}

func TestChangesOfObjects(t *testing.T) {
	api := newServer(thing{namespace: "n", name: "a", key: "k"}, thing{namespace: "m", name: "b", key: "k"})
	store := api.start(t, nil)
	inNamespace := programOf(t, v1alpha1.Lookup{})
	everywhere := programOf(t, v1alpha1.Lookup{Scope: v1alpha1.LookupScopeCluster, KeyErrors: v1alpha1.LookupKeyErrorsSkip})
	store.Want([]*lookups.Program{inNamespace, inNamespace})
	wantFound(t, store, inNamespace, "n", "k", "a")
	if _, err := find(store, everywhere, "n", "k"); err == nil || err.Error() != "things are not watched yet" {
		t.Errorf("a lookup that nothing wants: %v", err)
	}
	store.Want([]*lookups.Program{inNamespace, everywhere}) // ends the watch, and lists again
	wantFound(t, store, everywhere, "n", "k", "b a")
	if got := unready(store); got != "" {
		t.Errorf("unready %q, want none", got)
	}
	b := thing{namespace: "m", name: "b", key: "l"}
	api.change(func() { api.things[1] = b }, "MODIFIED", b)
	wantFound(t, store, everywhere, "n", "k", "a")
	api.change(func() { api.things = api.things[:1] }, "DELETED", b)
	wantFound(t, store, everywhere, "n", "l", "")
	store.Want([]*lookups.Program{everywhere})
	api.change(func() {}, "ADDED", b)
	wantFound(t, store, everywhere, "n", "l", "b")
	if _, err := find(store, inNamespace, "n", "k"); err == nil {
		t.Error("a lookup that nothing needs any more is kept")
	}
	store.Want(nil)
	if got := store.budget.Used(); got["lookups"] != 0 {
		t.Errorf("%v bytes are in use without lookups", got)
	}
}

// What an API server answers has a message with a fix, and ends with its cause.
func TestProblems(t *testing.T) {
	forbidden := func(text string) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: text}
	}
	for name, tc := range map[string]struct {
		status *metav1.Status
		isAway bool
		lookup v1alpha1.Lookup
		want   string
	}{
		"no permission": {
			status: forbidden("things is forbidden"),
			want: `Ostiary may not read things: create a ClusterRole with the label admission.ostiary.dev/aggregate-to-lookups: "true" ` +
				`and the rule {apiGroups: [""], resources: ["things"], verbs: [list, watch]}`,
		},
		"no impersonation": {
			status: forbidden(`serviceaccounts "ostiary-lookups" is forbidden: User "x" cannot impersonate resource "serviceaccounts"`),
			want: "Ostiary may not impersonate the ServiceAccount ostiary-system/ostiary-lookups, which it uses for lookups: apply config/rbac of " +
				"this version",
		},
		"no resource": {isAway: true, want: "the API server has no resource things in v1: install it, or change spec.lookups"},
		"an API server that fails": {
			status: &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: 500, Message: "it is broken"},
			want:   "reading things: listing things: it is broken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newServer(thing{namespace: "n", name: "a", key: "k"})
			api.status, api.isAway = tc.status, tc.isAway
			store := api.start(t, nil)
			p := programOf(t, tc.lookup)
			store.Want([]*lookups.Program{p})
			wantError(t, store, p, "n", tc.want)
			if got := store.State(p.Definition); got != (State{Problem: tc.want}) {
				t.Errorf("state %+v", got)
			}
			if got := unready(store); got != Name(p.Definition) {
				t.Errorf("unready %q, want the lookup", got)
			}
			if err := store.Ready(); err != nil {
				t.Errorf("a problem keeps the replica from being ready: %v", err)
			}
			api.change(func() { api.status, api.isAway = nil, false }, "", thing{})
			wantFound(t, store, p, "n", "k", "a")
			if got := store.State(p.Definition); got != (State{Objects: 1}) {
				t.Errorf("state %+v afterwards", got)
			}
		})
	}
}

func TestScopeOfAResourceWithoutNamespaces(t *testing.T) {
	api := newServer(thing{name: "a", key: "k"})
	store := api.start(t, nil)
	p := programOf(t, v1alpha1.Lookup{Resource: v1alpha1.LookupResource{Resource: "roots"}})
	store.Want([]*lookups.Program{p})
	wantError(t, store, p, "n", "roots belong to no namespace: set scope: Cluster and keyErrors: Skip")
}

func TestMetadataOfSensitiveResources(t *testing.T) {
	api := newServer()
	additional, err := sensitive.New("things")
	if err != nil {
		t.Fatal(err)
	}
	store := api.start(t, func(o *Options) { o.Sensitive = additional })
	secrets := programOf(t, v1alpha1.Lookup{Resource: v1alpha1.LookupResource{Resource: "secrets"}})
	things := programOf(t, v1alpha1.Lookup{})
	store.Want([]*lookups.Program{secrets, things})
	eventually(t, func(g Gomega) {
		api.mu.Lock()
		defer api.mu.Unlock()
		g.Expect(api.accepts).To(HaveKey("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"))
		g.Expect(api.accepts).NotTo(HaveKey("application/json"))
	})
}

// If the objects of a tenant exceed a limit, only requests that could find these objects are errors.
func TestTenantBeyondLimits(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	many := 300_000
	if testing.Short() {
		many = 60_000 // more than the default share too; the race detector decodes each object a hundred times slower
	}
	const fix = ": delete some of them, let storedKeys return fewer keys, or raise --lookup-entries or --lookup-memory"
	for name, tc := range map[string]struct {
		count     int
		things    []thing
		keys      string
		limits    func(*Options)
		want      string
		isFailure bool // of an object, which scope Cluster leaves out
	}{
		"objects beyond the default limits": {count: many, want: `the objects in namespace "tenant" `},
		"more keys than its share": {
			count: 20_000, limits: func(o *Options) { o.Entries = 80_000 }, want: `the objects in namespace "tenant" have more than 10000 keys`,
		},
		"more memory than its share": {
			count: 20_000, limits: func(o *Options) { o.Memory = 16 << 20 },
			want: `the objects in namespace "tenant" use more than their share of 2.0 MiB`,
		},
		"a key of 1 MiB": {
			things: []thing{{"tenant", "large", large, ""}}, isFailure: true,
			want: "tenant/large: storedKeys: a key has 1048576 bytes, more than 1024",
		},
		"a million keys": {
			things: []thing{{"tenant", "large", "k", strings.Repeat("x,", 1<<19)}}, keys: `stored.spec.text.split(",")`, isFailure: true,
			want: "tenant/large: storedKeys: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newServer(append(tc.things, thing{namespace: "n", name: "a", key: "k"})...)
			api.count = tc.count
			store := api.start(t, tc.limits)
			inNamespace := programOf(t, v1alpha1.Lookup{StoredKeys: tc.keys})
			everywhere := programOf(t, v1alpha1.Lookup{
				StoredKeys: tc.keys, Scope: v1alpha1.LookupScopeCluster, KeyErrors: v1alpha1.LookupKeyErrorsSkip,
			})
			other := programOf(t, v1alpha1.Lookup{StoredKeys: "[stored.metadata.name]", Resource: v1alpha1.LookupResource{Resource: "secrets"}})
			store.Want([]*lookups.Program{inNamespace, everywhere, other})
			wantError(t, store, inNamespace, "tenant", tc.want)
			if got := store.State(inNamespace.Definition).Problem; !strings.Contains(got, tc.want) || !tc.isFailure && !strings.HasSuffix(got, fix) {
				t.Errorf("problem %q", got)
			}
			if tc.isFailure {
				eventually(t, func(g Gomega) { g.Expect(store.State(everywhere.Definition).Loading).To(BeFalse()) })
				if got := store.State(everywhere.Definition); got.Problem != "" || got.LeftOut != 1 || !strings.Contains(got.Example, tc.want) {
					t.Errorf("state %+v", got)
				}
			} else {
				wantError(t, store, everywhere, "n", tc.want)
			}
			if tc.keys == "" {
				wantFound(t, store, inNamespace, "n", "k", "a")
			}
			if used := store.budget.Used()["lookups"]; used > store.options.Memory {
				t.Errorf("%d bytes are in use", used)
			}
		})
	}
}

// Objects that were left out are read again when they fit.
func TestObjectsThatFitAgain(t *testing.T) {
	api := newServer(thing{namespace: "n", name: "a", key: "k"})
	api.count = 2000
	store := api.start(t, func(o *Options) { o.Entries = 8000 })
	store.relist = 0
	p := programOf(t, v1alpha1.Lookup{})
	everywhere := programOf(t, v1alpha1.Lookup{Scope: v1alpha1.LookupScopeCluster, KeyErrors: v1alpha1.LookupKeyErrorsSkip})
	store.Want([]*lookups.Program{p, everywhere})
	wantError(t, store, p, "tenant", "have more than 1000 keys")
	wantError(t, store, everywhere, "n", "have more than 1000 keys")
	api.change(func() { api.count = 1000 }, "", thing{})
	eventually(t, func(g Gomega) {
		(*store.indexes.Load())[p.Definition].feed.again.Send() // watches end by themselves every 20 s
		g.Expect(find(store, p, "tenant", "k1")).To(Equal("t1"))
	})
	wantFound(t, store, everywhere, "n", "k", "a")
	if got := store.State(everywhere.Definition); got != (State{Objects: 1000}) {
		t.Errorf("state %+v", got)
	}
}

// A list that begins before the first index is added, or after the last one is removed, is no error.
func TestListWithoutIndexes(t *testing.T) {
	f := newFeed(New(Options{}), schema.GroupVersionResource{Version: "v1", Resource: "things"})
	f.BeginList()
	if err := f.Put([]byte(thing{namespace: "n", name: "a", key: "k"}.raw(1)), true); err != nil {
		t.Error(err)
	}
	f.EndList("1")
}

// Before the first list, the age of the data is not known, so there is no value that means "current".
func TestAgeBeforeTheFirstList(t *testing.T) {
	api := newServer()
	api.isAway = true
	registry := prometheus.NewRegistry()
	store := api.start(t, func(o *Options) { o.Registerer = registry })
	store.Want([]*lookups.Program{programOf(t, v1alpha1.Lookup{})})
	for name, want := range map[string]int{"ostiary_lookup_age_seconds": 0, "ostiary_lookup_keys": 1, "ostiary_lookups_unready": 1} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s: %d values, want %d, %v", name, got, want, err)
		}
	}
}

// Data that is too old is an error. TestAsOf has what makes it young again.
func TestAge(t *testing.T) {
	api := newServer(thing{namespace: "n", name: "a", key: "k"})
	store := api.start(t, func(o *Options) { o.MaxAge = time.Nanosecond })
	p := programOf(t, v1alpha1.Lookup{})
	store.Want([]*lookups.Program{p})
	wantError(t, store, p, "n", "the API server has not confirmed the things for more than 1ns, the limit of --lookup-max-age")
	if got := store.State(p.Definition).Problem; !strings.Contains(got, "--lookup-max-age") {
		t.Errorf("problem %q", got)
	}
	if got := unready(store); got != Name(p.Definition) {
		t.Errorf("unready %q, want the lookup", got)
	}
}

func TestRound(t *testing.T) {
	got := map[int64]int64{}
	for _, n := range []int64{0, 7, 99, 100, 104, 105, 999, 12345, 300_000} {
		got[n] = round(n)
	}
	want := map[int64]int64{0: 0, 7: 7, 99: 99, 100: 100, 104: 100, 105: 110, 999: 1000, 12345: 12000, 300_000: 300_000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Different definitions have different names, so that a replica does not take one for another.
func TestName(t *testing.T) {
	a := lookups.Definition{Resource: "a", StoredKeys: "b"}
	names := []string{
		Name(a), Name(lookups.Definition{Resource: "a", Value: "b"}), Name(lookups.Definition{Group: "a", StoredKeys: "b"}),
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 3 || Name(a) != Name(lookups.Definition{Resource: "a", StoredKeys: "b"}) {
		t.Errorf("names %v", names)
	}
}
