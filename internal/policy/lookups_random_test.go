package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/lookups"
)

// randomCases is the number of random requests to policies with lookups.
const randomCases = 10_000

// storedService is a Service of the dump that the independent evaluation reads.
type storedService struct {
	uid, namespace, name string
	labels, selector     map[string]string
	ips                  []string // nil for a Service without the field
}

// content returns the object.
func (s *storedService) content() map[string]any {
	metadata := map[string]any{"uid": s.uid, "namespace": s.namespace, "name": s.name}
	spec := map[string]any{}
	if len(s.labels) > 0 {
		metadata["labels"] = asAny(s.labels)
	}
	if len(s.selector) > 0 {
		spec["selector"] = asAny(s.selector)
	}
	if s.ips != nil {
		ips := []any{}
		for _, ip := range s.ips {
			ips = append(ips, ip)
		}
		spec["externalIPs"] = ips
	}
	return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
}

func asAny(in map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range in {
		out[key] = value
	}
	return out
}

func pairsOf(in map[string]string) (out []string) {
	for key, value := range in {
		out = append(out, key+"="+value)
	}
	return out
}

// randomKeys are expressions of keys, with what they are of a Service. Those of stored objects can fail.
type randomKeys struct {
	stored, request string
	ofStored        func(*storedService) (keys []string, fails bool)
	ofRequest       func(*storedService) []string
}

func allRandomKeys() map[string]randomKeys {
	const pairs = `%[1]s.?%[2]s.orValue({}).map(k, k + "=" + %[1]s.%[2]s[k])`
	labels := func(s *storedService) ([]string, bool) { return pairsOf(s.labels), false }
	selector := func(s *storedService) ([]string, bool) { return pairsOf(s.selector), false }
	return map[string]randomKeys{
		"ips": {
			stored: "stored.spec.externalIPs", request: "variables.it.spec.?externalIPs.orValue([])",
			ofStored:  func(s *storedService) ([]string, bool) { return s.ips, s.ips == nil },
			ofRequest: func(s *storedService) []string { return s.ips },
		},
		"selectors": {
			stored: fmt.Sprintf(pairs, "stored.spec", "selector"), request: fmt.Sprintf(pairs, "variables.it.metadata", "labels"),
			ofStored: selector, ofRequest: func(s *storedService) []string { return pairsOf(s.labels) },
		},
		"labels": {
			stored: fmt.Sprintf(pairs, "stored.metadata", "labels"), request: fmt.Sprintf(pairs, "variables.it.spec", "selector"),
			ofStored: labels, ofRequest: func(s *storedService) []string { return pairsOf(s.selector) },
		},
	}
}

// randomLookup is a policy with one lookup.
type randomLookup struct {
	spec  v1alpha1.Lookup
	keys  randomKeys
	group *Group
	index *lookups.Index
	needs *lookups.Program
}

// Lookup implements Lookups.
func (l *randomLookup) Lookup(_ context.Context, p *lookups.Program, q lookups.Query) (lookups.Result, error) {
	if p.Definition != l.index.Definition() {
		return lookups.Result{}, fmt.Errorf("unexpected lookup %v", p.Definition)
	}
	return l.index.Find(q)
}

// randomLookups returns a policy for each form of a lookup.
func randomLookups(t *testing.T) (out []*randomLookup) {
	t.Helper()
	for name, keys := range allRandomKeys() {
		for _, match := range []v1alpha1.LookupMatch{"Any", "AllRequestKeys", "AllStoredKeys"} {
			for _, scope := range []string{"Namespace, keyErrors: Fail", "Namespace, keyErrors: Skip", "Cluster, keyErrors: Skip"} {
				out = append(out, newRandomLookup(t, fmt.Sprintf("%s-%d", name, len(out)), keys, match, scope))
			}
		}
	}
	return out
}

func newRandomLookup(t *testing.T, name string, keys randomKeys, match v1alpha1.LookupMatch, scope string) *randomLookup {
	t.Helper()
	p := policyFrom(t, name, fmt.Sprintf(`
matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [services, pods]}]}
variables: [{name: it, expression: 'request.operation == "DELETE" ? oldObject : object'}]
lookups: [{name: l, resource: {version: v1, resource: services}, match: %s, scope: %s, storedKeys: %q, requestKeys: %q,
  value: 'stored.metadata.namespace + "/" + stored.metadata.name'}]
validations: [{expression: lookups.l.size() == 0, messageExpression: 'lookups.l.join(" ")'}]
`, match, scope, keys.stored, keys.request))
	compiled := mustCompile(t, sharedCompiler, p)
	l := &randomLookup{spec: p.Spec.Lookups[0], keys: keys, group: NewGroup([]*Compiled{compiled}), needs: compiled.LookupNeeds()[0]}
	l.index = lookups.NewIndex(l.needs.Definition, lookups.Limits{})
	return l
}

// set changes the index as a watch does.
func (l *randomLookup) set(t *testing.T, c *lookups.Changes, s *storedService) {
	t.Helper()
	ref := lookups.Ref{UID: s.uid, Namespace: s.namespace, Name: s.name}
	entry, err := l.needs.Entry(t.Context(), s.content())
	if err != nil {
		c.Fail(ref, err)
		return
	}
	c.Put(ref, entry)
}

// matches decides in the words of the API whether two lists have the keys in common that a lookup asks for.
func matches(match v1alpha1.LookupMatch, stored, request []string) bool {
	has := func(all []string) func(string) bool {
		return func(key string) bool { return slices.Contains(all, key) }
	}
	without := func(all, keys []string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(all, key) })
	}
	switch {
	case len(stored) == 0 || len(request) == 0:
		return false
	case match == v1alpha1.LookupMatchAllRequestKeys:
		return !without(stored, request)
	case match == v1alpha1.LookupMatchAllStoredKeys:
		return !without(request, stored)
	}
	return slices.ContainsFunc(stored, has(request))
}

// failed is the outcome of a request whose evaluation ends with an error.
const failed = "error"

// outcomeOf evaluates a lookup over the dump: the names of what is found, or failed.
func (l *randomLookup) outcomeOf(dump map[string]*storedService, own *storedService, resource string) string {
	var found []string
	for _, s := range dump {
		keys, fails := l.keys.ofStored(s)
		switch {
		case l.spec.EffectiveScope() == v1alpha1.LookupScopeNamespace && s.namespace != own.namespace:
		case fails && l.spec.EffectiveKeyErrors() == v1alpha1.LookupKeyErrorsFail:
			return failed
		case fails, s.uid == own.uid, resource == "services" && s.namespace == own.namespace && s.name == own.name:
		case matches(l.spec.EffectiveMatch(), keys, l.keys.ofRequest(own)):
			found = append(found, s.namespace+"/"+s.name)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// randomServices writes Services at random.
type randomServices struct {
	*rand.Rand
	dump map[string]*storedService // by UID
	uids int
}

func (r *randomServices) pairs() map[string]string {
	out := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if r.IntN(3) > 0 {
			out[key] = []string{"web", "api"}[r.IntN(2)]
		}
	}
	return out
}

// service returns a Service whose names and keys are often those of others.
func (r *randomServices) service() *storedService {
	r.uids++
	s := &storedService{
		uid: fmt.Sprintf("uid-%d", r.uids), namespace: []string{"shop", "bank", "zoo"}[r.IntN(3)], name: fmt.Sprint("s", r.IntN(9)),
		labels: r.pairs(), selector: r.pairs(),
	}
	if r.IntN(40) > 0 {
		s.ips = []string{}
		for range r.IntN(4) {
			s.ips = append(s.ips, fmt.Sprint("192.0.2.", r.IntN(12)))
		}
	}
	return s
}

// change changes the dump, and returns what a watch or a list makes of it.
func (r *randomServices) change() (put []*storedService, removed []string, isList bool) {
	s := r.service()
	for _, other := range r.dump { // API servers store one object of a name
		if other.namespace == s.namespace && other.name == s.name {
			if r.IntN(3) == 0 {
				delete(r.dump, other.uid)
				return nil, []string{other.uid}, false
			}
			s.uid = other.uid
		}
	}
	r.dump[s.uid] = s
	if r.IntN(20) > 0 {
		return []*storedService{s}, nil, false
	}
	for _, other := range r.dump { // deletions that a watch has missed
		if r.IntN(4) == 0 {
			delete(r.dump, other.uid)
		}
	}
	return slices.Collect(maps.Values(r.dump)), nil, true
}

func (l *randomLookup) apply(t *testing.T, put []*storedService, removed []string, isList bool) {
	t.Helper()
	l.index.Update(func(c *lookups.Changes) {
		if isList {
			c.BeginList()
		}
		for _, s := range put {
			l.set(t, c, s)
		}
		for _, uid := range removed {
			c.Remove(uid)
		}
		if isList {
			c.EndList()
		}
	})
}

// request returns a request about a Service of the dump or another one, or about a Pod.
func (r *randomServices) request(t *testing.T) (own *storedService, request *admissionv1.AdmissionRequest) {
	t.Helper()
	own = r.service()
	operation := admissionv1.Create
	if n := r.IntN(len(r.dump) + 10); n < len(r.dump) {
		old := slices.SortedFunc(maps.Values(r.dump), func(a, b *storedService) int { return strings.Compare(a.uid, b.uid) })[n]
		own.uid, own.namespace, own.name = old.uid, old.namespace, old.name
		operation = []admissionv1.Operation{admissionv1.Update, admissionv1.Delete}[r.IntN(2)]
	}
	kind, resource := "Service", "services"
	if operation == admissionv1.Create && r.IntN(3) == 0 {
		kind, resource = "Pod", "pods"
	}
	content := own.content()
	content["kind"] = kind
	if operation == admissionv1.Create {
		delete(content["metadata"].(map[string]any), "uid")
	}
	raw, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	request = &admissionv1.AdmissionRequest{
		Operation: operation, Namespace: own.namespace, Name: own.name, UserInfo: authenticationv1.UserInfo{Username: "ann"},
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource},
	}
	if operation != admissionv1.Delete {
		request.Object = runtime.RawExtension{Raw: raw}
	}
	if operation != admissionv1.Create {
		request.OldObject = runtime.RawExtension{Raw: raw}
	}
	return own, request
}

func (l *randomLookup) outcome(t *testing.T, request *admissionv1.AdmissionRequest) string {
	t.Helper()
	host := hostOf()
	host.Lookups = l
	response := evaluate(t, l.group, request, host)
	if response.Allowed {
		return ""
	}
	_, message, _ := strings.Cut(response.Result.Message, "denied request: ")
	if strings.Contains(message, `lookup "l": the lookup is incomplete: an object has no keys`) {
		return failed
	}
	return message
}

// TestRandomLookups compares decisions about random requests with an independent evaluation over a dump of all
// objects, which change after every fourth request.
func TestRandomLookups(t *testing.T) {
	r := &randomServices{Rand: rand.New(rand.NewPCG(*seed, 40)), dump: map[string]*storedService{}}
	all := randomLookups(t)
	counts := map[string]int{}
	for i := range randomCases {
		if i%4 == 0 {
			put, removed, isList := r.change()
			for _, l := range all {
				l.apply(t, put, removed, isList)
			}
		}
		l := all[r.IntN(len(all))]
		own, request := r.request(t)
		want, got := l.outcomeOf(r.dump, own, request.Resource.Resource), l.outcome(t, request)
		if got != want {
			t.Fatalf("case %d of seed %d: got %q, want %q\nlookup %+v\n%s of %s %+v\n%s", i, *seed, got, want,
				l.spec, request.Operation, request.Resource.Resource, own, describeDump(r.dump))
		}
		switch want {
		case failed, "":
			counts[want]++
		default:
			counts[fmt.Sprint(min(strings.Count(want, " ")+1, 3))]++
		}
	}
	for _, outcome := range []string{failed, "", "1", "2", "3"} {
		if counts[outcome] < randomCases/200 { // the rarest, errors, are about one in a hundred
			t.Errorf("the cases are too much alike: %v", counts)
		}
	}
}

func describeDump(dump map[string]*storedService) string {
	var b strings.Builder
	for _, s := range dump {
		fmt.Fprintf(&b, "%+v\n", *s)
	}
	return b.String()
}

// TestRandomLookupsDuringChanges changes objects while queries are answered: each answer is that of the objects at one
// time, which is not before the query.
func TestRandomLookupsDuringChanges(t *testing.T) {
	const changes = 3000
	r := &randomServices{Rand: rand.New(rand.NewPCG(*seed, 41)), dump: map[string]*storedService{}}
	l := newRandomLookup(t, "during", allRandomKeys()["labels"], v1alpha1.LookupMatchAllRequestKeys, "Cluster, keyErrors: Skip")
	var mu sync.Mutex
	history := map[uint64]map[string]*storedService{l.index.View().Revision: {}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range changes {
			put, removed, isList := r.change()
			mu.Lock()
			l.apply(t, put, removed, isList)
			history[l.index.View().Revision] = maps.Clone(r.dump)
			mu.Unlock()
		}
	}()
	own := &storedService{uid: "none", namespace: "shop", name: "none", selector: map[string]string{"app": "web"}}
	query := lookups.Query{Keys: []string{"app=web"}, Match: l.spec.EffectiveMatch(), Namespace: own.namespace}
	answers := 0
	for isDone := false; !isDone || answers == 0; answers++ {
		select {
		case <-done:
			isDone = true
		default:
		}
		mu.Lock()
		newest := l.index.View().Revision
		mu.Unlock()
		view := l.index.View()
		result, err := view.Find(query)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range result.Values {
			got = append(got, v.Namespace+"/"+v.Name)
		}
		mu.Lock()
		then := history[view.Revision]
		mu.Unlock()
		if want := l.outcomeOf(then, own, "services"); strings.Join(got, " ") != want || view.Revision < newest {
			t.Fatalf("at revision %d, after %d: got %q, want %q", view.Revision, newest, got, want)
		}
	}
	if len(history) < changes/2 {
		t.Errorf("%d changes lead to %d revisions", changes, len(history))
	}
}
