package policy

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
)

// regroup makes a group anew, after its policies have been changed.
func regroup(g *Group) *Group {
	return NewGroup(g.policies)
}

// counting counts how often a program runs.
type counting struct {
	cel.Program
	runs   *int
	panics bool
}

func (c *counting) ContextEval(ctx context.Context, vars any) (out ref.Val, details *cel.EvalDetails, err error) {
	*c.runs++
	if c.panics {
		panic("in a batch")
	}
	return c.Program.ContextEval(ctx, vars)
}

// TestBatchTakesOnlyTrueForAnAnswer: what a batch finds true is not evaluated
// again; everything else is, by itself.
func TestBatchTakesOnlyTrueForAnAnswer(t *testing.T) {
	tests := map[string]struct {
		specs     map[string]string
		panics    string // the policy whose program panics
		decisions map[string]Decision
		want      string
		wantRuns  map[string]int // once in the batch, and once more where that did not settle it
	}{
		"all true": {
			specs:     map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'true'}]"},
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionAllow}, wantRuns: map[string]int{"a": 1, "b": 1},
		},
		"one false, one in error": {
			specs:     map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'false', message: m}]", "c": "validations: [{expression: '1 / int(object.spec.containers.size() - 2) == 1'}]\nfailurePolicy: Ignore"},
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionDeny, "c": DecisionError},
			want:      "WebhookPolicy 'b' denied request: m", wantRuns: map[string]int{"a": 1, "b": 2, "c": 2},
		},
		"one panics": {
			specs:     map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'true'}]", "c": "validations: [{expression: 'false', message: m}]"},
			panics:    "b",
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionError, "c": DecisionDeny},
			want:      "WebhookPolicy 'b' denied request: internal error: the evaluation panicked\nWebhookPolicy 'c' denied request: m", wantRuns: map[string]int{"a": 2, "b": 2, "c": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, tc.specs)
			runs := map[string]*int{}
			for _, p := range group.policies {
				runs[p.name] = new(int)
				for i := range p.plain {
					p.plain[i].Program = &counting{Program: p.plain[i].Program, runs: runs[p.name], panics: p.name == tc.panics}
				}
			}
			decisions := map[string]Decision{}
			resp := evaluate(t, regroup(group), podInput(t, admission.Create).review(t), Environment{Now: time.Now, Observe: observeInto(decisions)})
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
			}
			if message != tc.want {
				t.Errorf("message = %q, want %q", message, tc.want)
			}
			if diff := cmp.Diff(tc.decisions, decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			for policy, want := range tc.wantRuns {
				if *runs[policy] != want {
					t.Errorf("policy %s ran %d times, want %d", policy, *runs[policy], want)
				}
			}
		})
	}
}

// TestBatchBeyondTheBudgetDecidesNothing: policies that are each within their
// budget stay so, however many of them a batch holds.
func TestBatchBeyondTheBudgetDecidesNothing(t *testing.T) {
	specs := map[string]string{}
	want := map[string]Decision{}
	dear := "validations: [{expression: '[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > 0))))'}]"
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		for _, second := range strings.Split("abcdefghij", "") {
			specs[name+second], want[name+second] = dear, DecisionAllow
		}
	}
	group := groupFrom(t, specs)
	r := newRequest(podInput(t, admission.Create).review(t))
	if err := r.prepare(t.Context(), inputs{}); err != nil {
		t.Fatal(err)
	}
	for _, turn := range inOrder(t.Context(), r, group.index.candidates("pods")) {
		if turn.satisfied {
			t.Fatalf("policy %s was settled beyond the budget: make the expressions dearer if it is not exceeded", turn.policy.name)
		}
	}
	decisions := map[string]Decision{}
	evaluate(t, group, podInput(t, admission.Create).review(t), Environment{Now: time.Now, Observe: observeInto(decisions)})
	if diff := cmp.Diff(want, decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
