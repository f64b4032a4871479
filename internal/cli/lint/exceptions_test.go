package lint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
)

func TestExceptions(t *testing.T) {
	const (
		head = "apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicyException\nmetadata: {name: x, namespace: shop}\nspec:\n"
		good = "  policyName: p\n  validations: [has-team]\n  match: [{group: '', resources: [pods]}]\n  reason: r\n" +
			"  expirationTime: '2027-03-02T00:00:00Z'\n"
		on = "admission.ostiary.dev/v1alpha1\nkind: WebhookPolicy\nmetadata: {name: p}\nspec:\n  exceptions: {maxDurationSeconds: 86400}\n" +
			"  matchConstraints:\n    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]\n" +
			"  validations: [{name: has-team, expression: has(object.metadata.labels), message: m}]\n"
	)
	change := func(before, after string) string { return head + strings.Replace(good, before, after, 1) }
	tests := map[string]struct {
		exception, policy string
		want              []string
	}{
		"right": {exception: head + good},
		"unknown policy": {
			exception: change("policyName: p", "policyName: q"),
			want:      []string{`warning spec.policyName 5: exception "x": the policy "q" does not exist`},
		},
		"no spec.exceptions": {
			exception: head + good,
			policy:    strings.Replace(on, "  exceptions: {maxDurationSeconds: 86400}\n", "", 1),
			want:      []string{`warning spec.policyName 5: exception "x": the policy "p" has no exceptions`},
		},
		"unknown validation": {
			exception: change("[has-team]", "[team]"),
			want:      []string{`warning spec.validations 6: exception "x": the policy "p" has no validation "team"`},
		},
		"one unknown validation": {
			exception: change("[has-team]", "[has-team, team]"),
			want:      []string{`warning spec.validations 6: exception "x": the policy "p" has no validation "team"`},
		},
		"never matched": {
			exception: change("[pods]", "[pods, services, pods/exec]"),
			want: []string{
				`warning spec.match[0].resources[1] 7: exception "x": the rules of the policy "p" never match "services"`,
				`warning spec.match[0].resources[2] 7: exception "x": the rules of the policy "p" never match "pods/exec"`,
			},
		},
		"ended": {
			exception: change("2027-03-02", "2027-03-01"),
			want:      []string{`warning spec.expirationTime 9: exception "x": the exception ended at 2027-03-01T00:00:00Z`},
		},
		"too long": {
			exception: change("2027-03-02", "2027-03-03"),
			want:      []string{`warning spec.expirationTime 9: exception "x": the exception lasts longer`},
		},
		"no end": {
			exception: change("  expirationTime: '2027-03-02T00:00:00Z'\n", ""),
			want:      []string{`warning spec.expirationTime 4: exception "x": the policy "p" needs an end`},
		},
		"condition with request": {
			exception: head + good + "  condition: request.name == 'a'\n",
			want:      []string{`error spec.condition 10: exception "x": the expression is not valid`},
		},
		"no reason": {
			exception: change("  reason: r\n", ""),
			want:      []string{`error spec.reason 4: exception "x": Required value`},
		},
		"two wildcards": {
			exception: change("resources: [pods]", "resources: [pods], names: ['*a*']"),
			want:      []string{`error spec.match[0].names[0] 7: exception "x": Invalid value`},
		},
		"unknown field": {
			exception: head + good + "  until: now\n",
			want:      []string{"error  10: spec.until: WebhookPolicyException has no such field"},
		},
		"template of a workload": {
			exception: change("{group: '', resources: [pods]}", "{group: apps, resources: [deployments]}"),
			policy:    on + "  podTemplates: {}\n",
		},
		"workload, no templates": {
			exception: change("{group: '', resources: [pods]}", "{group: apps, resources: [deployments]}"),
			want:      []string{`warning spec.match[0].resources[0] 7: exception "x": the rules of the policy "p" never match "deployments"`},
		},
		"an exception of a later": {
			exception: strings.Replace(head, "v1alpha1", "v2", 1) + good,
			want:      []string{"error  2: kind: admission.ostiary.dev has no kind WebhookPolicyException in version v2"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.policy == "" {
				tt.policy = on
			}
			text := tt.exception + "---\napiVersion: " + tt.policy
			objects, err := load.Objects(t.Context(), []string{"-"}, load.Options{Stdin: strings.NewReader(text)})
			if err != nil {
				t.Fatal(err)
			}
			findings, _, err := Check(t.Context(), objects, nil, policy.LatestEngine, time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				if f.Rule == ruleException || f.Rule == ruleRead {
					got = append(got, fmt.Sprintf("%s %s %d: %s", f.Severity, f.Field, f.Line, f.Message))
				}
			}
			same := cmp.Comparer(func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) })
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
