package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// badObjects returns ConfigMaps that violate isGood.
func badObjects(n int) []map[string]any {
	var out []map[string]any
	for i := range n {
		out = append(out, configMapOf("a", fmt.Sprintf("object-%04d", i), "1", "bad"))
	}
	return out
}

func TestLinesAreTheFirstOnes(t *testing.T) {
	api := &apiServer{page: 500, objects: badObjects(30)}
	// In any order: the lines do not depend on it.
	api.objects[0], api.objects[29] = api.objects[29], api.objects[0]
	s, r := scannerFor(t, api), newResults(10)
	r.set(wanted(targetFrom(t, "p", isGood)))
	now := time.Unix(1_000_000, 0)
	scanOnce(t, s, r, now)
	key := pairKey{"p", "a"}
	names := func() (out []string) {
		for _, l := range r.lines[key] {
			out = append(out, l.name)
		}
		return out
	}
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("object-%04d", i))
	}
	if diff := cmp.Diff(want, names()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	now = now.Add(time.Hour)
	if got := scanOnce(t, s, r, now); got != 0 {
		t.Errorf("%v evaluations of unchanged objects", got)
	}
	r.remove(configMaps, idOf("uid-aobject-0003"))
	api.objects = append(api.objects[:3:3], api.objects[4:]...)
	if got := scanOnce(t, s, r, now); got < 1 || got > 19 {
		t.Errorf("%v evaluations to fill the free line", got)
	}
	want = append(append(want[:3:3], want[4:]...), "object-0010")
	if diff := cmp.Diff(want, names()); diff != "" {
		t.Errorf("lines after a deletion (-want +got):\n%s", diff)
	}
	if r.kept != 10 || r.counts[key].violations() != 29 {
		t.Errorf("%d lines, %v", r.kept, r.counts[key])
	}
	if got := scanOnce(t, s, r, now); got != -1 {
		t.Errorf("another scan with %v evaluations", got)
	}
}

func TestExamplesContainNoMessages(t *testing.T) {
	s, r := scannerFor(t, &apiServer{page: 500, objects: badObjects(7)}), newResults(10)
	r.set(wanted(targetFrom(t, "p", isGood), targetFrom(t, "errs", `int(object.data.verdict) > 0`)))
	now := time.Unix(1_000_000, 0)
	scanOnce(t, s, r, now.Add(time.Millisecond))
	r.setProblems(map[string]string{"q": "it reads request.userInfo"})
	r.summarize()
	scanned := metav1.NewTime(now) // as it is stored
	var examples []string
	for i := range 5 {
		examples = append(examples, fmt.Sprintf("configmaps a/object-%04d: v", i))
	}
	var errored []string
	for i := range 5 {
		errored = append(errored, fmt.Sprintf("configmaps a/object-%04d: v", i))
	}
	want := map[string]*v1alpha1.AuditStatus{
		"p":    {Violations: ptr.To[int64](7), Objects: 7, Time: &scanned, Examples: examples},
		"errs": {Violations: ptr.To[int64](0), Errors: 7, Objects: 7, Time: &scanned, Examples: errored},
		"q":    {Missing: []string{"it reads request.userInfo"}},
	}
	if diff := cmp.Diff(want, r.summaries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReports(t *testing.T) {
	s, r := scannerFor(t, &apiServer{page: 500, objects: badObjects(3)}), newResults(2)
	r.set(wanted(targetFrom(t, "p", isGood), targetFrom(t, "ValidatingAdmissionPolicy/p", isGood)))
	r.setProblems(map[string]string{"q": "it reads request.userInfo", "ValidatingAdmissionPolicy/q": "it has no validations"})
	scanOnce(t, s, r, time.Now())
	var got []*unstructured.Unstructured
	for _, report := range r.reports() {
		parts, err := report.parts()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, parts...)
	}
	labels := map[string]any{"app.kubernetes.io/managed-by": "ostiary"}
	result := func(name string) map[string]any {
		return map[string]any{"source": "ostiary", "policy": "p", "rule": "v", "result": "fail", "scored": true, "message": "m",
			"resources": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": name, "uid": "uid-a" + name}}}
	}
	first, second := result("object-0000"), result("object-0001")
	first["properties"] = map[string]any{"omittedResults": "1"}
	native := func(of map[string]any) map[string]any {
		of = maps.Clone(of)
		of["source"] = "ValidatingAdmissionPolicy"
		return of
	}
	want := []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "openreports.io/v1alpha1", "kind": "ClusterReport", "metadata": map[string]any{"name": "ostiary", "labels": labels}, "source": "ostiary",
			"summary": map[string]any{"pass": int64(0), "fail": int64(0), "warn": int64(0), "error": int64(0), "skip": int64(2)},
			"results": []any{
				map[string]any{"source": "ValidatingAdmissionPolicy", "policy": "q", "result": "skip", "scored": false, "message": "it has no validations"},
				map[string]any{"source": "ostiary", "policy": "q", "result": "skip", "scored": false, "message": "it reads request.userInfo"},
			}}},
		{Object: map[string]any{"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "metadata": map[string]any{"namespace": "a", "name": "ostiary", "labels": labels,
			"annotations": map[string]any{"admission.ostiary.dev/omitted-results": "2"}}, "source": "ostiary",
			"summary": map[string]any{"pass": int64(0), "fail": int64(6), "warn": int64(0), "error": int64(0), "skip": int64(0)},
			"results": []any{native(first), native(second), first, second}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPartsAreBounded(t *testing.T) {
	tests := map[string]struct {
		results, message, wantParts int
	}{
		"none":          {wantParts: 1},
		"500 results":   {results: 500, message: 10, wantParts: 1},
		"501 results":   {results: 501, message: 10, wantParts: 2},
		"long messages": {results: 400, message: maxLineMessage, wantParts: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := report{namespace: "a"}
			var lines []line
			for i := range tc.results {
				lines = append(lines, line{name: fmt.Sprintf("object-%d", i), uid: "u", verdict: fail, message: strings.Repeat("m", tc.message)})
			}
			p.add("p", counts{fail: int64(tc.results)}, lines)
			parts, err := p.parts()
			if err != nil || len(parts) != tc.wantParts {
				t.Fatalf("%d parts, want %d; %v", len(parts), tc.wantParts, err)
			}
			total := 0
			for i, part := range parts {
				data, err := json.Marshal(part)
				results, _, _ := unstructured.NestedSlice(part.Object, "results")
				if total += len(results); err != nil || len(data) > maxPartBytes || len(results) > maxPartResults || part.GetName() != partName(reportSource, i) {
					t.Errorf("part %s: %d bytes, %d results, %v", part.GetName(), len(data), len(results), err)
				}
			}
			if total != tc.results {
				t.Errorf("%d results, want %d", total, tc.results)
			}
		})
	}
}
