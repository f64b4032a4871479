package audit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/audit/results"
)

func TestReportsOfRequests(t *testing.T) {
	q := requests{found: []violations.Finding{
		{Policy: "b", Namespace: "shop", Denied: 40, Warned: 2},
		{Policy: "a", Namespace: "shop", Failed: 3, Warned: 1},
		{Policy: violations.Others, Namespace: violations.Others, Denied: 2, Failed: 1},
		{Policy: "c", Audited: 1},
		{Policy: "c", Namespace: "test", Warned: 1},
	}}
	var got []*unstructured.Unstructured
	for _, report := range q.reports() {
		parts, err := report.Parts()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, parts...)
	}
	result := func(policy, result, numbers string, properties map[string]any) map[string]any {
		return map[string]any{"source": "ostiary-admission", "policy": policy, "result": result, "scored": false, "message": "requests of the last 24 hours: " + numbers, "properties": properties}
	}
	want := []*unstructured.Unstructured{
		wantReport("ClusterReport", "", results.Counts{results.Violated: 2},
			result("(other)", "fail", "2 denied, 1 not evaluated because of an error", map[string]any{"denied": "2", "failed": "1"}),
			result("c", "fail", "1 audited", map[string]any{"audited": "1"})),
		wantReport("Report", "shop", results.Counts{results.Violated: 1, results.Errored: 1},
			result("a", "error", "1 warned about, 3 not evaluated because of an error", map[string]any{"warned": "1", "failed": "3"}),
			result("b", "fail", "40 denied, 2 warned about", map[string]any{"denied": "40", "warned": "2"})),
		wantReport("Report", "test", results.Counts{results.Warned: 1}, result("c", "warn", "1 warned about", map[string]any{"warned": "1"})),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func wantReport(kind, namespace string, of results.Counts, lines ...any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "openreports.io/v1alpha1", "kind": kind, "source": "ostiary-admission", "results": lines,
		"summary": map[string]any{"pass": int64(0), "fail": of[results.Violated], "warn": of[results.Warned], "error": of[results.Errored], "skip": int64(0)},
	}}
	u.SetName("ostiary-admission")
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "ostiary"})
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	return u
}

// TestReportsOfRequestsAreBounded: callers choose the namespaces.
func TestReportsOfRequestsAreBounded(t *testing.T) {
	var q requests
	for i := range maxRequestReports + 50 {
		q.found = append(q.found, violations.Finding{Policy: "p", Namespace: fmt.Sprintf("n-%d", i), Denied: 2})
	}
	reports := q.reports()
	if len(reports) != maxRequestReports+1 {
		t.Fatalf("%d reports, want those of %d namespaces and of the cluster", len(reports), maxRequestReports)
	}
	parts, err := reports[0].Parts()
	if err != nil {
		t.Fatal(err)
	}
	const want = "requests of the last 24 hours: 100 denied"
	lines, _, _ := unstructured.NestedSlice(parts[0].Object, "results")
	if len(lines) != 1 || lines[0].(map[string]any)["message"] != want || reports[0].Namespace != "" {
		t.Errorf("the report %q has %v, want that of the cluster with %q", reports[0].Namespace, lines, want)
	}
}

func TestRequestsAreReadAgain(t *testing.T) {
	var q requests
	now := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		name  string
		after time.Duration
		found []violations.Finding
		err   error
		want  bool
		kept  uint64
	}{
		{name: "none", found: nil},
		{name: "the first", after: pollInterval, found: []violations.Finding{{Denied: 1}}, want: true, kept: 1},
		{name: "more, too early", after: requestInterval - 1, found: []violations.Finding{{Denied: 2}}, kept: 1},
		{name: "an error", after: 1, err: errors.New("not read yet"), kept: 1},
		{name: "too early after the error", after: pollInterval - 1, found: []violations.Finding{{Denied: 2}}, kept: 1},
		{name: "more", after: 1, found: []violations.Finding{{Denied: 2}}, want: true, kept: 2},
		{name: "the same", after: requestInterval, found: []violations.Finding{{Denied: 2}}, kept: 2},
		{name: "none again", after: requestInterval, found: nil, want: true},
	} {
		now = now.Add(step.after)
		read := func(context.Context) ([]violations.Finding, error) { return step.found, step.err }
		if got := q.refresh(t.Context(), read, now); got != step.want {
			t.Errorf("%s: changed %t, want %t", step.name, got, step.want)
		}
		var kept uint64
		for _, f := range q.found {
			kept += f.Denied
		}
		if kept != step.kept {
			t.Errorf("%s: %d denied requests, want %d", step.name, kept, step.kept)
		}
	}
}
