package results

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/policy"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// audited is the table of a test, with the stored ConfigMaps that it is about.
type audited struct {
	*Table
	t       *testing.T
	objects []Object
	decide  map[string]policy.Decision // by policy, for all objects
	now     time.Time

	operation admissionv1.Operation // of the next results
}

func newAudited(t *testing.T, lines int, decide map[string]policy.Decision) *audited {
	t.Helper()
	a := &audited{Table: NewTable(lines), t: t, decide: decide, now: time.Unix(1_000_000, 0), operation: admissionv1.Update}
	a.setPlan()
	return a
}

// setPlan plans the policies of decide.
func (a *audited) setPlan() {
	r := Resource{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Policies: map[string]Version{}}
	for name := range a.decide {
		r.Policies[name] = Version{Params: 1}
	}
	a.Set(map[schema.GroupVersionResource]Resource{configMaps: r})
}

// add adds stored objects of a namespace.
func (a *audited) add(namespace string, from, to int) {
	for i := from; i < to; i++ {
		name := fmt.Sprintf("object-%04d", i)
		uid := "uid-" + namespace + name
		a.objects = append(a.objects, Object{ID: IDOf(uid), Version: 1, Namespace: namespace, Name: name, UID: uid})
	}
}

// delete deletes the stored object with an index.
func (a *audited) delete(index int) {
	a.Remove(configMaps, a.objects[index].ID)
	a.objects = append(a.objects[:index:index], a.objects[index+1:]...)
}

// visit evaluates objects in a pass, and returns the number of evaluations.
func (a *audited) visit(p *Pass, objects []Object) (n int) {
	for i := range objects {
		todo, hasRoom := a.Todo(p, &objects[i])
		if !hasRoom {
			continue
		}
		var got []audit.Result
		for _, index := range todo {
			d := a.decide[p.Policy(index)]
			violations := []policy.Violation{{Decision: d, Message: "m", Validation: "v"}}
			got = append(got, audit.Result{Audited: policy.Audited{Decision: d, Violations: violations}, Operation: a.operation})
		}
		a.Store(p, &objects[i], todo, got)
		n += len(todo)
	}
	return n
}

// pass makes the pass that is due, and returns the number of evaluations; -1 for none.
func (a *audited) pass() int {
	p := a.Next(a.now, time.Hour)
	if p == nil {
		return -1
	}
	n := a.visit(p, a.objects)
	a.Finish(p, 0, a.now)
	return n
}

func (a *audited) names(pair Pair) (out []string) {
	for _, l := range a.Snapshot().Lines[pair] {
		out = append(out, l.Name)
	}
	return out
}

// TestRecordsAreBounded has a tenant with more objects than the audit keeps results of.
func TestRecordsAreBounded(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.maxRecordsOfNamespace, a.maxRecords = 5, 100
	a.add("greedy", 0, 20)
	a.add("small", 0, 1)
	check := func(step string, evaluations int, greedy, records int64, want ...string) {
		t.Helper()
		if got := a.pass(); got != evaluations {
			t.Errorf("%s: %d evaluations, want %d", step, got, evaluations)
		}
		s := a.Snapshot()
		counts := map[Pair]Counts{{"p", "small"}: {Violated: 1}, {"p", "greedy"}: {Violated: greedy}}
		if greedy == 0 {
			delete(counts, Pair{"p", "greedy"})
		}
		if diff := cmp.Diff(counts, s.Counts); diff != "" || int64(a.records) != records {
			t.Errorf("%s: %d objects, counts (-want +got):\n%s", step, a.records, diff)
		}
		if diff := cmp.Diff(want, s.Scans["p"].Failures); diff != "" {
			t.Errorf("%s: failures (-want +got):\n%s", step, diff)
		}
		a.now = a.now.Add(time.Hour)
	}
	omitted := func(n, all int) string {
		return fmt.Sprintf("%d objects of configmaps were not evaluated, because the audit keeps results of at most 5 objects"+
			" of a namespace and %d in all", n, all)
	}
	check("too many", 6, 5, 6, omitted(15, 100))
	check("unchanged", 0, 5, 6, omitted(15, 100))
	a.objects = a.objects[18:]
	check("deleted", 0, 0, 1, omitted(2, 100))
	a.now = a.now.Add(time.Second - time.Hour) // soon
	check("there is room again", 2, 2, 3)
	a.maxRecords = 3
	a.add("other", 0, 1)
	check("too many in all", 0, 2, 3, omitted(1, 3))
	a.Set(nil)
	if a.records != 0 {
		t.Errorf("%d objects of no resource", a.records)
	}
}

func TestLinesAreTheFirstOnes(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 30)
	// In any order: the lines do not depend on it.
	a.objects[0], a.objects[29] = a.objects[29], a.objects[0]
	a.pass()
	pair := Pair{"p", "a"}
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("object-%04d", i))
	}
	if diff := cmp.Diff(want, a.names(pair)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	a.now = a.now.Add(time.Hour)
	if got := a.pass(); got != 0 {
		t.Errorf("%d evaluations of unchanged objects", got)
	}
	a.delete(3)
	if got := a.pass(); got < 1 || got > 19 {
		t.Errorf("%d evaluations to fill the free line", got)
	}
	want = append(append(want[:3:3], want[4:]...), "object-0010")
	if diff := cmp.Diff(want, a.names(pair)); diff != "" {
		t.Errorf("lines after a deletion (-want +got):\n%s", diff)
	}
	if got := a.Snapshot().Counts[pair]; a.kept != 10 || got.Violations() != 29 {
		t.Errorf("%d lines, %v", a.kept, got)
	}
	if got := a.pass(); got != -1 {
		t.Errorf("another pass with %d evaluations", got)
	}
}

// A list can contain an object whose deletion is known already.
func TestDeletionDuringPass(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 3)
	p := a.Next(a.now, time.Hour)
	a.Remove(configMaps, a.objects[1].ID)
	a.visit(p, a.objects)
	a.Finish(p, 0, a.now)
	if got := a.Snapshot().Counts[Pair{"p", "a"}]; got.Violations() != 2 {
		t.Errorf("%v, want 2 violations of 3", got)
	}
	if known := a.resources[configMaps]; known.newer != nil || known.refill {
		t.Errorf("after the pass: %d deleted, refill %v", len(known.newer), known.refill)
	}
}

// A list can contain an earlier state of an object that is evaluated again meanwhile.
func TestChangeDuringPass(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 4)
	p := a.Next(a.now, time.Hour)
	a.visit(p, a.objects[:3])
	later := slices.Clone(a.objects)
	for i := range later {
		later[i].Version = 2
	}
	a.Remove(configMaps, a.objects[2].ID)
	a.decide["p"] = policy.DecisionAllow
	again := a.Again(configMaps)
	if got := a.visit(again, later[1:]); got != 1 {
		t.Errorf("%d evaluations of an object with results, a deleted one, and a new one; want 1", got)
	}
	if got := a.visit(a.Again(configMaps), later[1:2]); got != 0 {
		t.Errorf("%d evaluations of an unchanged object", got)
	}
	a.decide["p"] = policy.DecisionDeny
	p.Restart()
	a.visit(p, a.objects)
	a.Finish(p, 0, a.now)
	want := Counts{Violated: 2, Passed: 1}
	if got := a.Snapshot().Counts[Pair{"p", "a"}]; got != want {
		t.Errorf("counts %v, want %v", got, want)
	}
	for i, want := range []bool{true, false, false, true} {
		if got := a.HasFinding(configMaps, a.objects[i].ID); got != want {
			t.Errorf("object %d has a finding: %v, want %v", i, got, want)
		}
	}
	if a.Again(schema.GroupVersionResource{Resource: "unknown"}) != nil {
		t.Error("a pass of an unknown resource")
	}
}

func TestSnapshotsStay(t *testing.T) {
	a := newAudited(t, 2, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 3)
	a.pass()
	a.SetProblems(map[string]Problem{"q": {Why: "why"}})
	s, again := a.Snapshot(), a.Snapshot()
	for range 3 {
		a.delete(0)
	}
	a.SetProblems(map[string]Problem{})
	a.decide = nil
	a.setPlan()
	if diff := cmp.Diff(again, s); diff != "" {
		t.Errorf("a snapshot has changed (-want +got):\n%s", diff)
	}
	if got := a.Snapshot(); len(got.Counts)+len(got.Lines)+len(got.Problems)+len(got.Scans) != 0 {
		t.Errorf("the current state is %+v", got)
	}
}

func TestSummaries(t *testing.T) {
	decide := map[string]policy.Decision{"p": policy.DecisionDeny, "errs": policy.DecisionError}
	a := newAudited(t, 10, decide)
	a.add("a", 0, 7)
	a.now = a.now.Add(time.Millisecond)
	a.pass()
	a.SetProblems(map[string]Problem{"q": {Why: "it reads request.userInfo"}})
	first := a.Snapshot()
	scanned := metav1.NewTime(time.Unix(1_000_000, 0)) // as it is stored
	var examples, errored []string
	for i := range 5 {
		examples = append(examples, fmt.Sprintf("configmaps a/object-%04d: v", i))
		errored = append(errored, fmt.Sprintf("configmaps a/object-%04d: v (error)", i))
	}
	want := map[string]Summary{
		"p": {Status: &v1alpha1.AuditStatus{Summary: "7", Violations: ptr.To[int64](7), Objects: 7, Time: &scanned, Examples: examples}},
		"errs": {Status: &v1alpha1.AuditStatus{
			Summary: "0, 7 errors", Violations: ptr.To[int64](0), Errors: 7, Objects: 7, Time: &scanned, Examples: errored,
		}},
		"q": {Status: &v1alpha1.AuditStatus{Summary: "n/a", Missing: []string{"it reads request.userInfo"}}},
	}
	if diff := cmp.Diff(want, first.Summaries()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A policy that is being scanned again keeps its result as a whole, and a new one has none.
	decide["new"] = policy.DecisionDeny
	a.setPlan()
	s := a.Snapshot()
	s.Scans["p"] = Scan{Running: true}
	s.Counts[Pair{"p", "a"}] = Counts{Violated: 3}
	if diff := cmp.Diff(want, s.After(first).Summaries()); diff != "" {
		t.Errorf("before the pass (-want +got):\n%s", diff)
	}
}

// TestWorkloads: the first workloads whose Pods are denied are named once, and the others counted.
func TestWorkloads(t *testing.T) {
	pair := Pair{"p", "a"}
	var lines []Line
	for i := range 8 {
		lines = append(lines, Line{Workload: fmt.Sprintf("Deployment a/w%d", i/2), Verdict: Violated})
	}
	many := slices.Clone(lines)
	for i := range 4 {
		many = append(many, Line{Workload: fmt.Sprintf("Job a/j%d", i), Verdict: Violated})
	}
	four := []string{"Deployment a/w0", "Deployment a/w1", "Deployment a/w2", "Deployment a/w3"}
	tests := map[string]struct {
		lines []Line
		count int64
		want  []string
	}{
		"none":           {lines: []Line{{Verdict: Violated}}, count: 1},
		"some":           {lines: lines, count: 8, want: four},
		"many":           {lines: many, count: 12, want: append(slices.Clone(four), "Job a/j0", "3 more")},
		"without a line": {lines: lines, count: 9, want: append(slices.Clone(four), "possibly more")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{
				Lines:  map[Pair][]Line{pair: tt.lines},
				Counts: map[Pair]Counts{pair: {Violated: tt.count}},
				Scans:  map[string]Scan{"p": {}},
			}
			if diff := cmp.Diff(tt.want, s.Summaries()["p"].Status.Workloads); diff != "" {
				t.Errorf("workloads (-want +got):\n%s", diff)
			}
		})
	}
}

// A finding about a new object counts apart from those about objects as they are.
func TestFindingsAnew(t *testing.T) {
	a := newAudited(t, 10, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 4)
	p := a.Next(a.now, time.Hour)
	a.visit(p, a.objects[:1])
	a.operation = admissionv1.Create
	a.visit(p, a.objects[1:3])
	a.decide["p"] = policy.DecisionError
	a.visit(p, a.objects[3:])
	a.Finish(p, 0, a.now)
	got := a.Snapshot().Summaries()["p"].Status
	scanned := metav1.NewTime(a.now)
	want := &v1alpha1.AuditStatus{
		Summary: "1 + 2 on create, 1 errors", Violations: ptr.To[int64](1), ViolationsOnCreate: 2, Errors: 1, Objects: 4, Time: &scanned,
		Examples: []string{
			"configmaps a/object-0000: v", "configmaps a/object-0001: v (CREATE)", "configmaps a/object-0002: v (CREATE)",
			"configmaps a/object-0003: v (CREATE, error)",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	parts, err := a.Snapshot().Reports()[1].Parts()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	results, _, _ := unstructured.NestedSlice(parts[0].Object, "results")
	for _, r := range results {
		line := r.(map[string]any)
		lines = append(lines, fmt.Sprint(line["result"], " ", line["properties"]))
	}
	wantLines := []string{
		"fail map[generation:0 operation:UPDATE]", "warn map[generation:0 operation:CREATE]",
		"warn map[generation:0 operation:CREATE]", "error map[generation:0 operation:CREATE]",
	}
	if diff := cmp.Diff(wantLines, lines); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	wantSummary := map[string]any{"pass": int64(0), "fail": int64(1), "warn": int64(2), "error": int64(1), "skip": int64(0)}
	if diff := cmp.Diff(wantSummary, parts[0].Object["summary"]); diff != "" {
		t.Errorf("summary of the report (-want +got):\n%s", diff)
	}
}

// What could not be read never counts as 0.
func TestNoFalseZero(t *testing.T) {
	two := ptr.To[int64](2)
	denied := Failure{Message: "m", Denied: true}
	tests := map[string]struct {
		objects int
		failure Failure
		problem string
		want    v1alpha1.AuditStatus
	}{
		"everything": {objects: 2, want: v1alpha1.AuditStatus{Summary: "2", Violations: two, Objects: 2}},
		"no object":  {want: v1alpha1.AuditStatus{Summary: "0", Violations: ptr.To[int64](0)}},
		"no permission": {
			failure: denied, want: v1alpha1.AuditStatus{Summary: "no access", Missing: []string{"m"}},
		},
		"no permission any more": {
			objects: 2, failure: denied, want: v1alpha1.AuditStatus{Summary: "≥ 2", Objects: 2, Missing: []string{"m"}},
		},
		"a list that fails": {
			objects: 2, failure: Failure{Message: "m"}, want: v1alpha1.AuditStatus{Summary: "≥ 2", Objects: 2, Missing: []string{"m"}},
		},
		"a list that fails at once": {
			failure: Failure{Message: "m"}, want: v1alpha1.AuditStatus{Summary: "≥ 0", Missing: []string{"m"}},
		},
		"kinds that are not evaluated": {
			objects: 2, problem: "more", want: v1alpha1.AuditStatus{Summary: "≥ 2", Objects: 2, Missing: []string{"more"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, 0, map[string]policy.Decision{"p": policy.DecisionDeny})
			a.add("a", 0, tc.objects)
			if tc.problem != "" {
				a.SetProblems(map[string]Problem{"p": {Why: tc.problem}})
			}
			p := a.Next(a.now, time.Hour)
			a.visit(p, a.objects)
			if tc.failure.Message != "" {
				a.Fail(p, tc.failure)
			} else {
				a.Finish(p, 0, a.now)
			}
			got := *a.Snapshot().Summaries()["p"].Status
			got.Time = nil
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReports(t *testing.T) {
	a := newAudited(t, 2, map[string]policy.Decision{"p": policy.DecisionDeny, "ValidatingAdmissionPolicy/p": policy.DecisionDeny})
	a.add("a", 0, 3)
	a.pass()
	a.SetProblems(map[string]Problem{"q": {Why: "it reads request.userInfo"}, "ValidatingAdmissionPolicy/q": {Why: "it has no validations"}})
	var got []*unstructured.Unstructured
	for _, report := range a.Snapshot().Reports() {
		parts, err := report.Parts()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, parts...)
	}
	labels := map[string]any{"app.kubernetes.io/managed-by": "ostiary"}
	result := func(name string) map[string]any {
		subject := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": name, "uid": "uid-a" + name}
		return map[string]any{
			"source": "ostiary", "policy": "p", "rule": "v", "result": "fail", "scored": true, "message": "m",
			"resources": []any{subject}, "properties": map[string]any{"operation": "UPDATE", "generation": "0"},
		}
	}
	first, second := result("object-0000"), result("object-0001")
	first["properties"] = map[string]any{"omittedResults": "1", "operation": "UPDATE", "generation": "0"}
	native := func(of map[string]any) map[string]any {
		of = maps.Clone(of)
		of["source"] = "ValidatingAdmissionPolicy"
		return of
	}
	skip := func(source, message string) map[string]any {
		return map[string]any{
			"source": source, "policy": "q", "result": "skip", "scored": false, "message": message,
			"properties": map[string]any{"reason": "NotAuditable"},
		}
	}
	summary := func(failed, skipped int64) map[string]any {
		return map[string]any{"pass": int64(0), "fail": failed, "warn": int64(0), "error": int64(0), "skip": skipped}
	}
	want := []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "openreports.io/v1alpha1", "kind": "ClusterReport", "source": "ostiary", "summary": summary(0, 2),
			"metadata": map[string]any{"name": "ostiary", "labels": labels},
			"results": []any{
				skip("ValidatingAdmissionPolicy", "it has no validations"), skip("ostiary", "it reads request.userInfo"),
			},
		}},
		{Object: map[string]any{
			"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "source": "ostiary", "summary": summary(6, 0),
			"metadata": map[string]any{
				"namespace": "a", "name": "ostiary", "labels": labels,
				"annotations": map[string]any{"admission.ostiary.dev/omitted-results": "2"},
			},
			"results": []any{native(first), native(second), first, second},
		}},
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
			r := Report{Namespace: "a"}
			var lines []Line
			for i := range tc.results {
				message := strings.Repeat("m", tc.message)
				lines = append(lines, Line{Name: fmt.Sprintf("object-%d", i), UID: "u", Verdict: Violated, Message: message})
			}
			r.addPolicy("p", Subject{}, Counts{Violated: int64(tc.results)}, lines)
			parts, err := r.Parts()
			if err != nil || len(parts) != tc.wantParts {
				t.Fatalf("%d parts, want %d; %v", len(parts), tc.wantParts, err)
			}
			total := 0
			for i, part := range parts {
				data, err := json.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				results, _, _ := unstructured.NestedSlice(part.Object, "results")
				total += len(results)
				if len(data) > maxPartBytes || len(results) > maxPartResults || part.GetName() != partName(ReportSource, i) {
					t.Errorf("part %s: %d bytes, %d results", part.GetName(), len(data), len(results))
				}
			}
			if total != tc.results {
				t.Errorf("%d results, want %d", total, tc.results)
			}
		})
	}
}
