package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// TestViolatedPoliciesDecideTogether: each of several violated policies has the decisions that it has alone in its call.
func TestViolatedPoliciesDecideTogether(t *testing.T) {
	const (
		ignore  = "failurePolicy: Ignore\n"
		missing = `{expression: 'object.metadata.labels.no == "x"'}`
		named   = `{expression: 'false', messageExpression: '"of " + string(object.metadata.name)'}`
	)
	specs := map[string]string{
		"a": "validations: [{expression: 'false', message: 'of a'}]",
		"b": ignore + "validations: [" + missing + "]",
		"c": "validations: [" + missing + ", {expression: 'true'}, {expression: 'false', reason: Forbidden}]",
		"d": ignore + "validations: [" + named + ", {expression: '2 < 1'}]",
		"e": "validations: [{expression: 'true'}, {expression: 'false', messageExpression: 'string(object.metadata.labels.no)'}]",
		"f": "validations: [{expression: 'true'}]",
		"g": "validations: [{expression: '1 / 0 == 1'}, " + named + "]",
	}
	want := map[string]validating.ValidateResult{}
	for name, spec := range specs {
		for policy, result := range decidedTogether(t, map[string]string{name: spec}) {
			want[policy] = result
		}
	}
	if len(want) != 6 {
		t.Fatalf("%d policies are decided alone, want those that are violated: 6", len(want))
	}
	if diff := cmp.Diff(want, decidedTogether(t, specs), cmpopts.IgnoreFields(validating.PolicyDecision{}, "Elapsed")); diff != "" {
		t.Errorf("decisions (-alone +together):\n%s", diff)
	}
}

// decidedTogether returns the decisions about the violated policies of one call, by name.
func decidedTogether(t *testing.T, specs map[string]string) map[string]validating.ValidateResult {
	t.Helper()
	group := groupFrom(t, specs)
	r := newRequest(podInput(t, admission.Create).review(t))
	if err := r.prepare(t.Context(), inputs{object: unstructuredjson.Everything()}, Environment{}); err != nil {
		t.Fatal(err)
	}
	group.index.candidates("pods").targets[0].evaluations(t.Context(), &r.whole, Environment{Now: time.Now})
	out := map[string]validating.ValidateResult{}
	for c, result := range r.whole.decided {
		out[c.name] = result
	}
	return out
}
