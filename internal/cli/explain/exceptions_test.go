package explain

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestExceptions: an explanation says which exceptions have an effect, and why others have none.
func TestExceptions(t *testing.T) {
	const text = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: p}
spec:
  exceptions: {}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{name: has-team, expression: "has(object.metadata.labels)", message: no team}]
---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicyException
metadata: {name: a, namespace: default}
spec: {policyName: p, validations: [has-team], match: [{group: "", resources: [pods], names: [api]}], reason: r}
---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicyException
metadata: {name: b, namespace: default}
spec: {policyName: p, validations: [has-team], match: [{group: "", resources: [pods]}], reason: r, expirationTime: "2027-03-01T00:00:00Z"}
`
	const other = "  exception default/a from has-team: no entry of spec.match has the name\n"
	tests := map[string]struct {
		at   string
		want []string
	}{
		"before the end": {
			at: "2027-02-28T23:59:59Z",
			want: []string{
				"p: excepted\n", other + "  exception default/b from has-team: lets the request pass\n",
				"  binding (default): allowed by an exception: has-team: no team (exception default/b)\n",
			},
		},
		"after the end": {
			at:   "2027-03-01T00:00:00Z",
			want: []string{"p: deny\n", other + "  exception default/b from has-team: Expired\n", "  binding (default): Deny: has-team: no team\n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}}"
			if err := errors.Join(os.WriteFile("policy.yaml", []byte(text), 0o600), os.WriteFile("pod.yaml", []byte(pod), 0o600)); err != nil {
				t.Fatal(err)
			}
			out, errOut, err := run(t, "", "-f", "policy.yaml", "--object", "pod.yaml", "--at", tt.at)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("got\n%s\nwant %s", out, want)
				}
			}
			const note = "has no effect: the exception ended at 2027-03-01T00:00:00Z"
			if got := strings.Contains(errOut, note); got != (name == "after the end") {
				t.Errorf("the notes are %q", errOut)
			}
		})
	}
}
