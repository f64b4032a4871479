package results

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/policy"
)

// passWith makes the pass that is due with one result for all objects, and returns the number of
// evaluations; -1 if none is due.
func (a *audited) passWith(got policy.Audited) int {
	p := a.Next(a.now, time.Hour)
	if p == nil {
		return -1
	}
	evaluations := 0
	for i := range a.objects {
		todo, ok := a.Todo(p, &a.objects[i])
		if !ok {
			continue
		}
		results := make([]audit.Result, len(todo))
		for j := range results {
			results[j].Audited = got
		}
		evaluations += len(todo)
		a.Store(p, &a.objects[i], todo, results)
	}
	a.Finish(p, 0, a.now)
	return evaluations
}

// TestWouldChange: what mutations would change is a number, and neither a violation nor a line. It is
// absent without mutations.
func TestWouldChange(t *testing.T) {
	p := &v1alpha1.WebhookPolicy{}
	err := yaml.Unmarshal([]byte(`{metadata: {name: p}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [UPDATE]}]},
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}]}}`), p)
	if err != nil {
		t.Fatal(err)
	}
	compiled, errs := policy.NewCompiler().Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	a := newAudited(t, 2, map[string]policy.Decision{"p": policy.DecisionAllow})
	a.add("a", 0, 3)
	if a.pass(); a.Snapshot().Summaries()["p"].Status.WouldChange != nil {
		t.Error("a number without mutations")
	}
	type want struct {
		Evaluations        int
		Summary            string
		WouldChange, Other int64
		IsKnown            bool // as an object to evaluate again when it changes
	}
	for i, step := range []struct {
		result policy.Audited
		want   want
	}{
		{policy.Audited{Decision: policy.DecisionAllow, WouldChange: true}, want{3, "0, 3 would change", 3, 0, true}},
		{policy.Audited{Decision: policy.DecisionDeny, WouldChange: true, Violations: []policy.Violation{{Message: "m"}}},
			want{3, "3, 3 would change", 3, 3, true}},
		{policy.Audited{Decision: policy.DecisionAllow}, want{3, "0", 0, 0, false}},
	} {
		version := Version{Compiled: compiled, Params: uint64(i + 1)}
		a.Set(map[schema.GroupVersionResource]Resource{
			configMaps: {Kind: a.resources[configMaps].kind, Policies: map[string]Version{"p": version}},
		})
		got := want{Evaluations: a.passWith(step.result)}
		status := a.Snapshot().Summaries()["p"].Status
		got.Summary, got.WouldChange, got.Other = status.Summary, *status.WouldChange, *status.Violations
		got.IsKnown = a.HasFinding(configMaps, a.objects[0].ID)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if status.Objects != 3 {
			t.Errorf("step %d: %d objects, want 3", i, status.Objects)
		}
	}
	a.now = a.now.Add(2 * time.Hour)
	a.Fail(a.Next(a.now, time.Hour), Failure{Message: "m", RetryAt: a.now})
	if status := a.Snapshot().Summaries()["p"].Status; status.WouldChange != nil || len(status.Missing) == 0 {
		t.Errorf("after a scan that failed: %+v", status)
	}
}
