package results

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/policy"
)

// TestFound asks what a scan has found for the step of a rollout.
func TestFound(t *testing.T) {
	of, compiled := Subject{UID: "uid", Generation: 2}, &policy.Compiled{}
	line := func(name string, v Verdict) Line { return Line{Name: name, Resource: "pods", Verdict: v} }
	snapshot := Snapshot{
		Scans: map[string]Scan{
			"p":       {Subject: of, Compiled: compiled},
			"broken":  {Subject: of, Compiled: compiled, Failures: []string{"no access"}},
			"running": {Subject: of, Running: true},
			"quiet":   {Subject: of, Compiled: compiled},
		},
		Problems: map[string]Problem{"excluded": {Subject: of, Why: "spec.audit.enabled is false"}},
		Counts: map[Pair]Counts{
			{"p", "b"}:     {Passed: 5, Violated: 1, ViolatedAnew: 1, Excepted: 3},
			{"p", "a"}:     {Warned: 1, Errored: 1},
			{"p", ""}:      {ErroredAnew: 1},
			{"p", "fine"}:  {Passed: 9, Excepted: 1},
			{"other", "a"}: {Violated: 7},
		},
		Lines: map[Pair][]Line{
			{"p", "b"}: {line("one", Violated), line("two", ViolatedAnew), line("let-pass", Excepted)},
			{"p", "a"}: {line("three", Warned), line("four", Errored)},
			{"p", ""}:  {line("five", ErroredAnew)},
		},
	}
	everywhere := func(string) bool { return true }
	for name, tc := range map[string]struct {
		policy  string
		of      Subject
		selects func(string) bool
		want    Found
	}{
		"everywhere": {"p", of, everywhere, Found{Compiled: compiled, Count: 5, Examples: []string{
			"pods five (CREATE, error)", "pods a/three", "pods a/four (error)", "pods b/one", "pods b/two (CREATE)",
		}}},
		"one namespace": {"p", of, func(n string) bool { return n == "a" }, Found{Compiled: compiled, Count: 2, Examples: []string{
			"pods a/three", "pods a/four (error)",
		}}},
		"nothing":            {"quiet", of, everywhere, Found{Compiled: compiled}},
		"another generation": {"p", Subject{UID: "uid", Generation: 3}, everywhere, Found{}},
		"a scan is running":  {"running", of, everywhere, Found{}},
		"an unknown policy":  {"none", of, everywhere, Found{}},
		"a failure":          {"broken", of, everywhere, Found{Missing: "no access"}},
		"not audited":        {"excluded", of, everywhere, Found{Missing: "spec.audit.enabled is false"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := snapshot.Found(tc.policy, tc.of, tc.selects)
			if got.Compiled != tc.want.Compiled {
				t.Errorf("compiled: got %p, want %p", got.Compiled, tc.want.Compiled)
			}
			got.Compiled, tc.want.Compiled = nil, nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
}
