package policytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// TestExceptedCases: a case can expect that an exception lets its request pass, at a time.
func TestExceptedCases(t *testing.T) {
	text := fmt.Sprintf(rules, "p", "  exceptions: {}\n  validations: [{name: has-team, expression: 'false', message: no team}]") +
		"apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicyException\nmetadata: {name: x, namespace: default}\n" +
		"spec: {policyName: p, validations: [has-team], match: [{group: '', resources: [pods], names: [a]}], reason: r, " +
		"expirationTime: '2027-03-01T00:00:00Z'}\n---\n" + fmt.Sprintf(head, "p")
	tests := map[string]struct {
		pod, expect, at string
		args            []string
		want            string // of the problem; empty if the case passes
	}{
		"excepted":            {at: "2027-02-28T23:59:59Z", expect: "decision: Excepted"},
		"its validations":     {at: "2027-02-28T23:59:59Z", expect: "decision: Excepted, validations: [has-team]"},
		"its annotation":      {at: "2027-02-28T23:59:59Z", expect: "decision: Excepted, auditAnnotations: {excepted: p has-team by default/x}"},
		"excepted, not Allow": {at: "2027-02-28T23:59:59Z", expect: "decision: Allow", want: "expect.decision: got Excepted, want Allow"},
		"denied after the end": {
			at: "2027-03-01T00:00:00Z", expect: "decision: Excepted",
			want: "expect.decision: got Deny, want Excepted: WebhookPolicy 'p' denied request: has-team: no team\n" +
				"because p spec.validations[0].expression (has-team): false is false\n" +
				"because p has-team: the exception default/x has no effect: Expired",
		},
		"the time of the flag":  {args: []string{"--at", "2027-03-01T00:00:00Z"}, expect: "decision: Deny"},
		"before, with the flag": {args: []string{"--at", "2027-02-28T23:59:59Z"}, expect: "decision: Excepted"},
		"another Pod":           {pod: strings.Replace(pod, "name: a", "name: b", 1), at: "2027-02-28T23:59:59Z", expect: "decision: Deny"},
		"a message": {
			at: "2027-02-28T23:59:59Z", expect: "decision: Excepted, message: no team", want: "only Deny, Warn, Audit and Error have a message",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if tt.pod == "" {
				tt.pod = pod
			}
			test := text + "- name: c\n  object: " + tt.pod + "\n  expect: {" + tt.expect + "}\n"
			if tt.at != "" {
				test += "  at: '" + tt.at + "'\n"
			}
			out, _, err := run(t, test, append(tt.args, "-")...)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%v\n%s", err, out)
			case tt.want == "":
			case output.Status(err) == output.StatusOK || !strings.Contains(out+err.Error(), strings.ReplaceAll(tt.want, "\n", "\n    ")):
				t.Errorf("got  %v\n%s\nwant %s", err, out, tt.want)
			}
		})
	}
}
