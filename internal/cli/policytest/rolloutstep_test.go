package policytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// TestRolloutStep: a test chooses the step in effect, in which validations warn or deny, and mutations
// are previewed or applied.
func TestRolloutStep(t *testing.T) {
	const spec = "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: " +
		"{expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}]\n" +
		"  validations: [{expression: 'object.metadata.name != \"a\"', message: no a}]\n" +
		"  bindings: [{name: b, rollout: {steps: [{name: learn, minDurationSeconds: 60, validationActions: [Audit]}, " +
		"{name: warn, minDurationSeconds: 60, validationActions: [Warn]}], final: {validationActions: [Deny]}}}]"
	tests := map[string]struct{ step, pod, expect, want string }{
		"the first by default": {expect: "decision: Audit, auditAnnotations: {p.preview: 'b: add /metadata/labels'}"},
		"a later one":          {step: "warn", expect: "decision: Warn"},
		"not the final action": {step: "warn", expect: "decision: Deny", want: "expect.decision: got Warn, want Deny"},
		"the final action":     {step: "Final", expect: "decision: Deny, message: no a"},
		"a final mutation": {
			step: "Final", pod: strings.Replace(pod, "name: a", "name: c", 1),
			expect: "decision: Allow, object: {apiVersion: v1, kind: Pod, metadata: {name: c, namespace: default, labels: {a: b}}}",
		},
		"an unknown one": {
			step: "wran", expect: "decision: Deny",
			want: `rolloutStep: no rollout of the policies has the step "wran": write the name of one, or Final`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if tt.pod == "" {
				tt.pod = pod
			}
			test := fmt.Sprintf(rules, "p", spec) + strings.Replace(fmt.Sprintf(head, "p"), "cases:", "rolloutStep: '"+tt.step+"'\ncases:", 1)
			out, _, err := run(t, test+"- name: c\n  object: "+tt.pod+"\n  expect: {"+tt.expect+"}\n", "-")
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%v\n%s", err, out)
			case tt.want == "":
			case output.Status(err) == output.StatusOK || !strings.Contains(out+err.Error(), tt.want):
				t.Errorf("got  %v\n%s\nwant %s", err, out, tt.want)
			}
		})
	}
}
