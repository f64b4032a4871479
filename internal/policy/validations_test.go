package policy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/response"
)

func TestNamedValidations(t *testing.T) {
	type causes = []metav1.StatusCause
	const denied = "WebhookPolicy 'p' denied request: "
	tests := map[string]struct {
		spec         string
		want         causes
		wantWarnings []string
		wantAudit    []string // validation and message
		wantFailed   []string
	}{
		"denied, evaluated in a batch": {
			spec:       "validations: [{name: a, expression: 'false', message: m}, {expression: 'false', message: other}, {name: b, expression: 'true'}]",
			want:       causes{{Type: "a", Field: "object", Message: denied + "a: m"}, {Field: "object", Message: denied + "other"}},
			wantFailed: []string{"a"},
		},
		"denied, evaluated alone": {
			spec:       "validations: [{name: a, expression: 'false', message: m}]\nauditAnnotations: [{key: k, valueExpression: '\"v\"'}]",
			want:       causes{{Type: "a", Field: "object", Message: denied + "a: m"}},
			wantFailed: []string{"a"},
		},
		"warned and audited": {
			spec:         "validations: [{name: a, expression: 'false', message: m}]\nbindings: [{name: b, validationActions: [Warn, Audit]}, {name: c, validationActions: [Audit]}]",
			wantWarnings: []string{"Validation failed for WebhookPolicy 'p' with binding 'b': a: m"},
			wantAudit:    []string{"a a: m", "a a: m"},
			wantFailed:   []string{"a"},
		},
		"an error of a validation": {
			spec: "validations: [{name: a, expression: 'object.nope == 1'}, {name: b, expression: 'true'}]",
			want: causes{{Type: "a", Field: "object", Message: denied + "a: expression 'object.nope == 1' resulted in error: no such key: nope"}},
		},
		"an error of the only validation": {
			spec: "validations: [{name: a, expression: 'object.nope == 1'}]",
			want: causes{{Type: "a", Field: "object", Message: denied + "a: expression 'object.nope == 1' resulted in error: no such key: nope"}},
		},
		"an error of a match condition": {
			spec: "matchConditions: [{name: c, expression: 'object.nope == 1'}]\nvalidations: [{name: a, expression: 'false'}]",
			want: causes{{Field: "object", Message: denied + "expression 'object.nope == 1' resulted in error: no such key: nope"}},
		},
		"too much cost": {
			spec: "validations: [{name: a, expression: '" + strings.Repeat("[1,2,3,4,5,6,7,8,9,0].all(x, ", 7) + "object != null" + strings.Repeat(")", 7) + "'}]",
			want: causes{{Type: "a", Field: "object", Message: denied + "a: expression '" + strings.Repeat("[1,2,3,4,5,6,7,8,9,0].all(x, ", 7) + "object != null" + strings.Repeat(")", 7) + "' resulted in error: operation cancelled: actual cost limit exceeded"}},
		},
		"an expression that does not hold the name's policy back": {
			spec: "validations: [{name: a, expression: 'true'}]",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			var failed []string
			host.Failed = func(policy, validation string) {
				if policy != "p" {
					t.Errorf("failure of policy %q", policy)
				}
				failed = append(failed, validation)
			}
			resp := evaluate(t, groupFrom(t, map[string]string{"p": tc.spec}), podInput(t, admission.Create).review(t), host)
			var got causes
			if resp.Result != nil {
				got = resp.Result.Details.Causes
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWarnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			var audited []string
			for _, f := range failuresIn(t, resp.AuditAnnotations) {
				audited = append(audited, f.Validation+" "+f.Message)
			}
			if diff := cmp.Diff(tc.wantAudit, audited); diff != "" {
				t.Errorf("audited (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantFailed, failed); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
		})
	}
}

func failuresIn(tb testing.TB, annotations map[string]string) (out []response.ValidationFailure) {
	tb.Helper()
	if text, ok := annotations[response.FailureKey]; ok {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

func TestRatchet(t *testing.T) {
	const (
		denied = "WebhookPolicy 'p' denied request: "
		passed = "WebhookPolicy 'p' allowed request, because the stored object fails it too: "
		bad    = "{name: a, expression: 'object.metadata.labels.team != \"shop\" && object.metadata.labels.team != \"old\"', message: m, ratchet: true}" // true of both
		worse  = "{name: b, expression: 'object.metadata.labels.team != \"shop\"', message: other, ratchet: true}"                                       // true of the new one
	)
	tests := map[string]struct {
		spec          string
		operation     admission.Operation
		authorizer    authorizer.UnconditionalAuthorizer
		wantMessage   string
		wantWarnings  []string
		wantRatcheted string
		wantDecision  Decision
		wantFailed    []string
	}{
		"both fail":                     {spec: "validations: [" + bad + "]", wantWarnings: []string{passed + "a: m"}, wantRatcheted: "a", wantDecision: DecisionRatchet},
		"only the new one fails":        {spec: "validations: [" + worse + "]", wantMessage: denied + "b: other", wantDecision: DecisionDeny, wantFailed: []string{"b"}},
		"one of each":                   {spec: "validations: [" + bad + ", " + worse + "]", wantMessage: denied + "b: other", wantWarnings: []string{passed + "a: m"}, wantRatcheted: "a", wantDecision: DecisionDeny, wantFailed: []string{"b"}},
		"only the stored one fails":     {spec: "validations: [{expression: 'object.metadata.labels.team != \"old\"', ratchet: true}]", wantDecision: DecisionAllow},
		"of the policy":                 {spec: "ratchet: true\nvalidations: [{expression: 'false', message: m}]", wantWarnings: []string{passed + "spec.validations[0]: m"}, wantRatcheted: "spec.validations[0]", wantDecision: DecisionRatchet},
		"of the policy, not of one":     {spec: "ratchet: true\nvalidations: [{expression: 'false', message: m, ratchet: false}]", wantMessage: denied + "m", wantDecision: DecisionDeny},
		"without ratchet":               {spec: "validations: [{expression: 'false', message: m}]", wantMessage: denied + "m", wantDecision: DecisionDeny},
		"a binding that warns":          {spec: "validations: [" + bad + "]\nbindings: [{name: w, validationActions: [Warn]}]", wantWarnings: []string{"WebhookPolicy 'p' with binding 'w' allowed request, because the stored object fails it too: a: m"}, wantRatcheted: "a", wantDecision: DecisionRatchet},
		"a binding that audits":         {spec: "validations: [" + bad + "]\nbindings: [{name: w, validationActions: [Audit]}]", wantRatcheted: "a", wantDecision: DecisionRatchet},
		"the message is of the new one": {spec: "validations: [{expression: 'false', messageExpression: 'string(object.metadata.labels.team)', ratchet: true}]", wantWarnings: []string{passed + "spec.validations[0]: shop"}, wantRatcheted: "spec.validations[0]", wantDecision: DecisionRatchet},
		"CREATE":                        {spec: "validations: [" + bad + "]", operation: admission.Create, wantMessage: denied + "a: m", wantDecision: DecisionDeny, wantFailed: []string{"a"}},
		"DELETE":                        {spec: "validations: [{expression: 'oldObject == null', message: m, ratchet: true}]", operation: admission.Delete, wantMessage: denied + "m", wantDecision: DecisionDeny},
		"an error of the stored one":    {spec: "validations: [{expression: 'object.metadata.labels.team == \"old\" ? object.nope == 1 : false', message: m, ratchet: true}]", wantMessage: denied + "m", wantDecision: DecisionDeny},
		"an error of the stored one, Ignore": {
			spec:        "failurePolicy: Ignore\nvalidations: [{expression: 'object.metadata.labels.team == \"old\" ? object.nope == 1 : false', message: m, ratchet: true}]",
			wantMessage: denied + "m", wantDecision: DecisionDeny,
		},
		"an error of the new one": {
			spec:        "validations: [{expression: 'object.metadata.labels.team == \"shop\" ? object.nope == 1 : false', ratchet: true}]",
			wantMessage: denied + "expression 'object.metadata.labels.team == \"shop\" ? object.nope == 1 : false' resulted in error: no such key: nope", wantDecision: DecisionError,
		},
		"a change that is forbidden": {
			spec:        "validations: [{expression: 'object.metadata.labels.team == oldObject.metadata.labels.team', message: m, ratchet: true}]",
			wantMessage: denied + "m", wantDecision: DecisionDeny,
		},
		"variables are those of the stored one": {
			spec:        "variables: [{name: team, expression: 'object.metadata.labels.team'}]\nvalidations: [{expression: 'variables.team == \"old\"', message: m, ratchet: true}]",
			wantMessage: denied + "m", wantDecision: DecisionDeny,
		},
		"too much cost of the stored one": { // the new one costs little, and a message of its own is still evaluated
			spec:        "failurePolicy: Ignore\nvalidations: [{expression: '" + strings.Repeat("[1,2,3,4,5,6,7,8,9,0].all(x, ", 7) + "object.metadata.labels.team == \"old\"" + strings.Repeat(")", 7) + "', messageExpression: '\"costly\"', ratchet: true}]",
			wantMessage: denied + "costly", wantDecision: DecisionDeny,
		},
		"no answer of the authorizer about the stored one": {
			spec: "failurePolicy: Ignore\nvalidations: [{expression: 'object.metadata.labels.team == \"old\" && authorizer.path(\"/\").check(\"get\").allowed()', message: m, ratchet: true}]",
			authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionNoOpinion, "", &accessreview.UnavailableError{Err: errors.New("gone")}
			}),
			wantMessage: denied + "m", wantDecision: DecisionDeny,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			if tc.authorizer != nil {
				host.Authorizer = tc.authorizer
			}
			decisions := map[string]Decision{}
			var failed []string
			host.Observe = observeInto(decisions)
			host.Failed = func(_, validation string) { failed = append(failed, validation) }
			operation := tc.operation
			if operation == "" {
				operation = admission.Update
			}
			resp := evaluate(t, groupFrom(t, map[string]string{"p": tc.spec}), podInput(t, operation).review(t), host)
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
			}
			if message != tc.wantMessage {
				t.Errorf("message = %q, want %q", message, tc.wantMessage)
			}
			if diff := cmp.Diff(tc.wantWarnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if got := resp.AuditAnnotations["p."+auditRatchetedKey]; got != tc.wantRatcheted {
				t.Errorf("ratcheted = %q, want %q", got, tc.wantRatcheted)
			}
			if got := failuresIn(t, resp.AuditAnnotations); len(got) > 0 {
				t.Errorf("audited failures %v, want none", got)
			}
			if decisions["p"] != tc.wantDecision || !slices.Equal(failed, tc.wantFailed) {
				t.Errorf("decision = %q, want %q; failed %q, want %q", decisions["p"], tc.wantDecision, failed, tc.wantFailed)
			}
		})
	}
}

// TestRatchetReadsTheStoredObject: what the expression reads of the object is decoded of
// the stored one too.
func TestRatchetReadsTheStoredObject(t *testing.T) {
	raw := podInput(t, admission.Update).review(t)
	g := groupFrom(t, map[string]string{"p": "validations: [{expression: 'object.spec.containers.size() == 7', message: m, ratchet: true}]"})
	if resp := evaluate(t, g, raw, hostOf()); !resp.Allowed {
		t.Errorf("result = %+v, want the update to pass", resp.Result)
	}
}
