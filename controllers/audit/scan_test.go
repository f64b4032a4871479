package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/policy"
)

// apiServer lists ConfigMaps, and answers the first requests with errors.
type apiServer struct {
	objects []map[string]any
	page    int
	errors  []int // status codes of the next requests; 0 is none
	newer   bool  // an error that a token has expired has another one
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(s.errors) > 0 {
		code := s.errors[0]
		if s.errors = s.errors[1:]; code != 0 {
			reason := map[int]metav1.StatusReason{
				410: metav1.StatusReasonExpired,
				403: metav1.StatusReasonForbidden,
				404: metav1.StatusReasonNotFound,
			}[code]
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			status := metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status:   "Failure",
				Code:     int32(code),
				Reason:   reason,
			}
			if s.newer {
				status.Continue = "0" + r.URL.Query().Get("continue")
			}
			_ = json.NewEncoder(w).Encode(status)
			return
		}
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	selected := s.objects
	if name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); ok {
		selected = slices.DeleteFunc(slices.Clone(selected), func(o map[string]any) bool {
			return o["metadata"].(map[string]any)["name"] != name
		})
	}
	to := min(from+s.page, len(selected))
	list := map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "items": selected[from:to]}
	meta := map[string]any{"resourceVersion": "7"}
	if to < len(selected) {
		meta["continue"] = strconv.Itoa(to)
	}
	list["metadata"] = meta
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// configMapOf returns a stored object without apiVersion and kind, as in lists.
func configMapOf(namespace, name, version, verdict string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{
			"namespace":       namespace,
			"name":            name,
			"uid":             "uid-" + namespace + name,
			"resourceVersion": version,
		},
		"data": map[string]any{"verdict": verdict},
	}
}

type knownNamespaces struct{}

func (knownNamespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}, nil
}

type noResources struct{ Resources }

func (noResources) Refresh() {}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// targetFrom returns the target for a policy on ConfigMaps with a validation.
func targetFrom(t *testing.T, name, expression string) target {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	text := fmt.Sprintf("matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], "+
		"resources: [configmaps]}]}\nvalidations: [{name: v, expression: %q, message: m}]", expression)
	if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
		t.Fatal(err)
	}
	compiled, errs := policy.NewCompiler().Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return target{name: name, policy: p, version: results.Version{Compiled: compiled}, exempt: guard.ExemptNamespaces(nil), host: testHost()}
}

// planned returns the plan for targets on ConfigMaps.
func planned(targets ...target) plan {
	byName := map[string]target{}
	for _, t := range targets {
		byName[t.name] = t
	}
	return plan{configMaps: {kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, namespaced: true, targets: byName}}
}

// scannerFor returns a scanner of a server, without watches.
func scannerFor(t *testing.T, handler http.Handler) *Scanner {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host:          server.URL,
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &Scanner{
		pages:   map[schema.GroupVersionResource]int64{},
		budget:  unlimited(),
		changed: newChangedObjects(),
		metrics: newMetrics(prometheus.NewRegistry()),
		options: Options{Log: logr.Discard(), Resources: noResources{}},
	}
	s.reader = objects.Reader{Client: client, Wait: func(context.Context) error { return nil }}
	s.host = *testHost()
	return s
}

// unlimited never waits: the time of these tests depends on the machine.
func unlimited() *budget {
	return &budget{work: rate.NewLimiter(rate.Inf, 0), requests: rate.NewLimiter(rate.Inf, 0)}
}

func testHost() *policy.Environment {
	return &policy.Environment{Now: time.Now, Namespaces: knownNamespaces{}, Objects: admission.NewObjectInterfacesFromScheme(scheme.Scheme)}
}

// scanOnce runs the pass that is due for the targets, and returns the number of evaluations.
func scanOnce(t *testing.T, s *Scanner, table *results.Table, now time.Time, targets ...target) float64 {
	t.Helper()
	before := testutil.ToFloat64(s.metrics.evaluations)
	p := planned(targets...)
	table.Set(p.versions())
	pass := table.Next(now, time.Hour)
	if pass == nil {
		return -1
	}
	of := newScan(pass, p[configMaps])
	err := s.list(t.Context(), table, of, func(version string) {
		if version != "7" {
			t.Errorf("the list begins at version %q", version)
		}
	}, p)
	s.finish(table, of, err, now)
	return testutil.ToFloat64(s.metrics.evaluations) - before
}

const isGood = `object.data.verdict != "bad"`

func TestScan(t *testing.T) {
	api := &apiServer{page: 2, objects: []map[string]any{
		configMapOf("a", "one", "1", "bad"), configMapOf("a", "two", "1", "good"), configMapOf("b", "three", "1", "bad"),
		configMapOf("kube-system", "four", "1", "bad"),
		{"metadata": map[string]any{"name": "no-uid"}},
	}}
	s, table := scannerFor(t, api), results.NewTable(10)
	now := time.Unix(1_000_000, 0)
	check := func(step string, evaluations float64, want map[results.Pair]results.Counts, targets ...target) {
		t.Helper()
		if got := scanOnce(t, s, table, now, targets...); got != evaluations {
			t.Errorf("%s: %v evaluations, want %v", step, got, evaluations)
		}
		if diff := cmp.Diff(want, table.Snapshot().Counts); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", step, diff)
		}
	}
	pair := func(policy, namespace string) results.Pair { return results.Pair{Policy: policy, Namespace: namespace} }
	first := map[results.Pair]results.Counts{
		pair("p", "a"): {results.Passed: 1, results.Violated: 1}, pair("p", "b"): {results.Violated: 1},
	}
	p, q, other := targetFrom(t, "p", isGood), targetFrom(t, "q", `object.data.missing == ""`), targetFrom(t, "p", "true")
	check("first scan", 4, first, p)
	if diff := cmp.Diff([]string{"1 objects of configmaps could not be decoded"}, table.Snapshot().Scans["p"].Failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	check("nothing is due", -1, first, p)

	now = now.Add(time.Hour)
	check("unchanged objects", 0, first, p)

	now = now.Add(time.Hour)
	api.objects[0] = configMapOf("a", "one", "2", "good")
	api.objects = api.objects[:3]
	second := map[results.Pair]results.Counts{pair("p", "a"): {results.Passed: 2}, pair("p", "b"): {results.Violated: 1}}
	check("a changed and a deleted object", 1, second, p)

	second[pair("q", "a")], second[pair("q", "b")] = results.Counts{results.Errored: 2}, results.Counts{results.Errored: 1}
	check("a new policy", 3, second, p, q)

	second[pair("p", "b")] = results.Counts{results.Passed: 1}
	check("a changed policy", 3, second, q, other)

	delete(second, pair("p", "a"))
	delete(second, pair("p", "b"))
	check("a deleted policy", -1, second, q)

	table.Remove(configMaps, results.IDOf("uid-bthree"))
	delete(second, pair("q", "b"))
	check("a deletion", -1, second, q)
	check("no policy", -1, map[results.Pair]results.Counts{})
	if lines := table.Snapshot().Lines; len(lines) > 0 {
		t.Errorf("lines stay: %v", lines)
	}
}

// badObjects returns ConfigMaps that violate isGood.
func badObjects(n int) []map[string]any {
	var out []map[string]any
	for i := range n {
		out = append(out, configMapOf("a", fmt.Sprintf("object-%04d", i), "1", "bad"))
	}
	return out
}

func TestFailedLists(t *testing.T) {
	objects := []map[string]any{
		configMapOf("a", "one", "1", "bad"), configMapOf("a", "two", "1", "bad"), configMapOf("a", "three", "1", "bad"),
	}
	tests := map[string]struct {
		errors          []int
		newer           bool
		wantEvaluations float64
		wantFailure     string
		wantViolations  int64
	}{
		"an expired continue token": {errors: []int{0, 410, 0}, wantEvaluations: 3, wantViolations: 3},
		"another token":             {errors: []int{0, 410, 0, 410, 0, 410}, newer: true, wantEvaluations: 3, wantViolations: 3},
		"tokens that always expire": {
			errors:          []int{0, 410, 410, 410},
			wantEvaluations: 2,
			wantFailure:     "listing configmaps failed, and the results are of an earlier scan",
			wantViolations:  2,
		},
		"a second page that fails": {
			errors:          []int{0, 500},
			wantEvaluations: 2,
			wantFailure:     "listing configmaps failed, and the results are of an earlier scan",
			wantViolations:  2,
		},
		"a forbidden list": {
			errors:      []int{403},
			wantFailure: `the rule {apiGroups: [""], resources: ["configmaps"], verbs: [list, watch]}`,
		},
		"a kind that is gone": {errors: []int{404}, wantFailure: "the API server no longer lists configmaps"},
		"a kind that goes away": {
			errors:          []int{0, 404},
			wantEvaluations: 2,
			wantFailure:     "the API server no longer lists configmaps",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, table := scannerFor(t, &apiServer{page: 2, objects: objects, errors: tc.errors, newer: tc.newer}), results.NewTable(10)
			p := targetFrom(t, "p", isGood)
			now := time.Unix(1_000_000, 0)
			if got := scanOnce(t, s, table, now, p); got != tc.wantEvaluations {
				t.Errorf("%v evaluations, want %v", got, tc.wantEvaluations)
			}
			failure := func() string { return strings.Join(table.Snapshot().Scans["p"].Failures, "; ") }
			if !strings.Contains(failure(), tc.wantFailure) || (failure() == "") != (tc.wantFailure == "") {
				t.Errorf("failure %q, want %q", failure(), tc.wantFailure)
			}
			violations := func() int64 {
				return table.Snapshot().Counts[results.Pair{Policy: "p", Namespace: "a"}].Violations()
			}
			if got := violations(); got != tc.wantViolations {
				t.Errorf("%d violations, want %d", got, tc.wantViolations)
			}
			if tc.wantFailure == "" {
				return
			}
			if table.Next(now, time.Hour) != nil {
				t.Error("the scan is repeated at once")
			}
			if scanOnce(t, s, table, now.Add(retryInterval), p); failure() != "" || violations() != 3 {
				t.Errorf("after the next scan: failure %q, %d violations", failure(), violations())
			}
		})
	}
}

func TestForbiddenImpersonation(t *testing.T) {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "ostiary-audit",
		errors.New(`User "ostiary" cannot impersonate resource "serviceaccounts"`))
	if got, want := explain(configMaps.GroupResource(),
		err), "Ostiary may not impersonate the ServiceAccount ostiary-audit, which it uses for the audit: apply config/rbac "+
		"of this version"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLargeObjects(t *testing.T) {
	large := configMapOf("a", "large", "1", "bad")
	large["data"].(map[string]any)["big"] = strings.Repeat("x", 3<<19)
	s, table := scannerFor(t, &apiServer{
		page:    2,
		objects: []map[string]any{large, configMapOf("a", "small", "1", "bad")},
	}), results.NewTable(10)
	scanOnce(t, s, table, time.Now(), targetFrom(t, "p", isGood))
	if got := table.Snapshot().Counts[results.Pair{Policy: "p", Namespace: "a"}]; got[results.Violated] != 2 {
		t.Errorf("counts of objects of 1.5 MiB: %v", got)
	}
}

// TestLinesDoNotKeepObjects: a name that is a part of the decoded object keeps all of it.
func TestLinesDoNotKeepObjects(t *testing.T) {
	const n, size = 64, 1 << 20
	api := &apiServer{page: 4, objects: badObjects(n)}
	for i := range api.objects {
		api.objects[i]["data"].(map[string]any)["big"] = strings.Repeat("x", size)
	}
	s, table := scannerFor(t, api), results.NewTable(n)
	p := targetFrom(t, "p", isGood)
	before := heap()
	scanOnce(t, s, table, time.Now(), p)
	after := heap()
	if got := len(table.Snapshot().Lines[results.Pair{Policy: "p", Namespace: "a"}]); got != n {
		t.Fatalf("%d lines, want %d", got, n)
	}
	if after > before+n*size/4 {
		t.Errorf("%d lines about objects of %d MiB take %d MiB", n, size>>20, (after-before)>>20)
	}
}

// heap returns the bytes of live objects.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // empties pools
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
