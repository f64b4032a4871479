package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"
)

func TestAuditOfMutations(t *testing.T) {
	adds := mutations(label("a", `"b"`))
	type want struct {
		Decision
		Denied, WouldChange bool
		Messages            []string
	}
	tests := map[string]struct {
		spec string
		want want
	}{
		"applied":   {spec: adds, want: want{Decision: DecisionAllow, WouldChange: true}},
		"previewed": {spec: adds + previewing, want: want{Decision: DecisionAllow, WouldChange: true}},
		"no change": {spec: mutations(label("team", `"shop"`)), want: want{Decision: DecisionAllow}},
		"one undoes another": {
			spec: mutations(label("a", `"b"`), patching(op("remove", "/metadata/labels/a", ""))),
			want: want{Decision: DecisionAllow},
		},
		"a condition skips": {spec: "matchConditions: [{name: c, expression: 'false'}]\n" + adds, want: want{Decision: DecisionSkip}},
		"no binding matches": {
			spec: adds + "bindings: [{name: b, matchResources: {objectSelector: {matchLabels: {no: one}}}}]",
			want: want{Decision: DecisionUnmatched},
		},
		"the policy does not": {
			spec: adds + "matchConstraints: {objectSelector: {matchLabels: {no: one}}, " +
				"resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]}]}",
			want: want{Decision: DecisionUnmatched},
		},
		"with a validation": {
			spec: adds + "validations: [{expression: 'false', message: m}]",
			want: want{DecisionDeny, true, true, []string{"m"}},
		},
		"an error": {
			spec: mutations(label("a", "string(object.nope)")),
			want: want{DecisionError, true, false, []string{"no such key at spec.mutations[0]"}},
		},
		"an error of a preview": {
			spec: mutations(label("a", "string(object.nope)")) + previewing,
			want: want{DecisionError, false, false, []string{"no such key at spec.mutations[0]"}},
		},
		"by the user, not evaluated": {
			spec: mutations(label("a", "request.userInfo.username")) + "validations: [{expression: 'true'}]", want: want{Decision: DecisionAllow},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, "p", tt.spec)
			raw := podInput(t, admission.Create).review(t)
			raw.Operation, raw.OldObject = admissionv1.Update, raw.Object
			got := NewAuditor(p, mustCompile(t, sharedCompiler, p)).Evaluate(t.Context(), raw, testWorld.host())
			shown := want{Decision: got.Decision, Denied: got.Denied, WouldChange: got.WouldChange}
			for _, v := range got.Violations {
				shown.Messages = append(shown.Messages, v.Message)
			}
			if diff := cmp.Diff(tt.want, shown); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}
