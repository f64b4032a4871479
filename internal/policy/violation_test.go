package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// reported is what a host gets of a violation.
type reported struct {
	Policy     string
	Decision   Decision
	Violations []Violation
}

func reportInto(out *[]reported) func(ViolationReport) {
	return func(v ViolationReport) {
		*out = append(*out, reported{v.Policy, v.Decision, v.Violations()})
	}
}

func TestViolationsAreReported(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []reported
	}{
		"satisfied": {spec: "validations: [{expression: 'true'}]"},
		"denied": {
			spec: "validations: [{name: first, expression: 'false', message: m}, {expression: 'true'}, {expression: 'false', message: o}]",
			want: []reported{{"p", DecisionDeny, []Violation{
				{Validation: "first", Decision: DecisionDeny, Message: "m"},
				{Decision: DecisionDeny, Message: "o"},
			}}},
		},
		"several bindings": {
			spec: "validations: [{expression: 'false', message: m}]\nbindings: [{name: a, validationActions: [Warn]}, {name: b, validationActions: [Audit]}]",
			want: []reported{{"p", DecisionWarn, []Violation{
				{Binding: "a", Decision: DecisionWarn, Message: "m"},
				{Binding: "b", Decision: DecisionAudit, Message: "m"},
			}}},
		},
		"audited": {
			spec: "validations: [{expression: 'false', message: m}]\nbindings: [{name: a, validationActions: [Audit]}]",
			want: []reported{{"p", DecisionAudit, []Violation{{Binding: "a", Decision: DecisionAudit, Message: "m"}}}},
		},
		"an error that is ignored": {
			spec: "failurePolicy: Ignore\nvalidations: [{expression: 'object.missing == 1'}]",
			want: []reported{{"p", DecisionError, []Violation{{
				Decision: DecisionError, Message: "no such key at spec.validations[0].expression",
			}}}},
		},
		"an error of an audit annotation": {
			spec: "validations: [{expression: 'true'}]\nauditAnnotations: [{key: k, valueExpression: 'string(object.missing)'}]",
			want: []reported{{"p", DecisionError, []Violation{{
				Decision: DecisionError, Message: "no such key at spec.auditAnnotations[0].valueExpression",
			}}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []reported
			host := hostOf()
			host.Violated = reportInto(&got)
			evaluate(t, groupFrom(t, map[string]string{"p": tt.spec}), podInput(t, admission.Create).review(t), host)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedMutationIsReported(t *testing.T) {
	var got []reported
	host := hostOf() // without schemas
	host.Violated = reportInto(&got)
	group := groupFrom(t, map[string]string{"p": "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}]"})
	if _, err := group.Mutate(t.Context(), podInput(t, admission.Create).review(t), host); err != nil {
		t.Fatal(err)
	}
	want := []reported{{"p", DecisionError, []Violation{{Decision: DecisionError, Message: "the kind is not known yet at spec.mutations[0]"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// TestSkippedPolicyIsNotReported: the metric of break glass and the audit annotation name it.
func TestSkippedPolicyIsNotReported(t *testing.T) {
	var got []reported
	host := hostOf()
	host.Violated, host.Authorizer = reportInto(&got), &answering{decision: authorizer.DecisionAllow}
	evaluate(t, groupFrom(t, map[string]string{"p": "breakGlass: true\nvalidations: [{expression: 'false'}]"}), podInput(t, admission.Create).review(t), host)
	if len(got) > 0 {
		t.Errorf("got %+v, want no violation", got)
	}
}
