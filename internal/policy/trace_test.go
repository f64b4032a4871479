package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
)

// TestTrace compares the responses of a policy with and without a trace, and what the trace
// reports.
func TestTrace(t *testing.T) {
	const expensive = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, object.metadata.name != string(a+b+c+d+e+f)))))))"
	tests := map[string]struct {
		spec            string
		wantExpressions []string
		wantInvocations []string
	}{
		"conditions, variables, messages and annotations": {
			spec: "matchConditions: [{name: c, expression: 'true'}]\nvariables: [{name: team, expression: 'object.metadata.labels.team'}]\nvalidations: [{expression: 'variables.team == \"x\"', messageExpression: '\"not \" + variables.team'}]\nauditAnnotations: [{key: k, valueExpression: '\"v\"'}]",
			wantExpressions: []string{"spec.matchConditions[0].expression = true", "spec.variables[0].expression = shop", "spec.validations[0].expression = false",
				"spec.variables[0].expression = shop", "spec.validations[0].messageExpression = not shop", "spec.auditAnnotations[0].valueExpression = v"},
			wantInvocations: []string{" skipped false, [{true false not shop Invalid 0  false }] map[k:v]"},
		},
		"a condition that is false": {
			spec:            "matchConditions: [{name: c, expression: 'false'}]\nvalidations: [{expression: 'false'}]",
			wantExpressions: []string{"spec.matchConditions[0].expression = false"}, wantInvocations: []string{" skipped true, [] map[]"},
		},
		"an error": {
			spec:            "validations: [{expression: 'object.nothing == 1'}]",
			wantExpressions: []string{"spec.validations[0].expression: no such key: nothing"},
			wantInvocations: []string{
				" skipped false, [{true true expression 'object.nothing == 1' resulted in error: no such key: nothing  0  false }] map[]",
			},
		},
		"bindings": {
			spec:            "validations: [{expression: 'false', message: m}]\nbindings: [{name: a}, {name: b, validationActions: [Audit]}]",
			wantExpressions: []string{"spec.validations[0].expression = false"},
			wantInvocations: []string{
				"a skipped false, [{true false m Invalid 0  false }] map[]", "b skipped false, [{true false m Invalid 0  false }] map[]",
			},
		},
		"too much cost": {
			spec:            "validations: [{expression: '" + expensive + "'}]",
			wantExpressions: []string{"spec.validations[0].expression: operation cancelled: actual cost limit exceeded"},
			wantInvocations: []string{
				" skipped false, [{true true expression '" + expensive + "' resulted in error: " +
					"operation cancelled: actual cost limit exceeded  0  false }] map[]",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			raw := podInput(t, admission.Create).review(t)
			var expressions, invocations []string
			ctx := WithTrace(t.Context(), Trace{
				Expression: func(e Evaluated) {
					text := fmt.Sprintf("%s = %v", e.Field, e.Value)
					if e.Err != nil {
						text = fmt.Sprintf("%s: %v", e.Field, e.Err)
					} else if e.Value.Type().TypeName() == "string" {
						text = fmt.Sprintf("%s = %s", e.Field, e.Value.Value())
					}
					expressions = append(expressions, text)
				},
				Invocation: func(i Invoked) {
					invocations = append(invocations, fmt.Sprintf("%s skipped %t, %v %v", i.Binding, i.Skipped, i.Decisions, i.Annotations))
				},
			})
			p := policyFrom(t, "p", tt.spec)
			want := evaluate(t, NewGroup([]*Compiled{mustCompile(t, NewCompiler(), p)}), raw, hostOf())
			got, err := NewGroup([]*Compiled{mustCompile(t, NewTracingCompiler(LatestEngine), p)}).Validate(ctx, raw, hostOf())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the response differs (-without a trace +with one):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantExpressions, expressions); diff != "" {
				t.Errorf("expressions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantInvocations, invocations); diff != "" {
				t.Errorf("invocations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTraceHasValuesAndCosts checks what an explanation reads.
func TestTraceHasValuesAndCosts(t *testing.T) {
	c := NewTracingCompiler(LatestEngine)
	const expression = `object.metadata.name == "x" || object.metadata.labels.all(k, k.size() > 2)`
	g := NewGroup([]*Compiled{mustCompile(t, c, policyFrom(t, "p", "validations: [{expression: '"+expression+"'}]"))})
	var found Evaluated
	ctx := WithTrace(t.Context(), Trace{Expression: func(e Evaluated) { found = e }})
	if _, err := g.Validate(ctx, podInput(t, admission.Create).review(t), hostOf()); err != nil {
		t.Fatal(err)
	}
	parsed, err := c.Parse(expression)
	if err != nil {
		t.Fatal(err)
	}
	call := parsed.NativeRep().Expr().AsCall()
	value, ok := found.State.Value(call.Args()[0].ID())
	if !ok || value.Value() != false || found.Cost == 0 {
		t.Errorf("the first operand is %v, the cost %d; want false and a cost", value, found.Cost)
	}
	if _, ok := parsed.NativeRep().SourceInfo().GetMacroCall(call.Args()[1].ID()); !ok {
		t.Error("the macro is not kept as it is written")
	}
	if _, err := c.Parse("object."); err == nil || !strings.Contains(err.Error(), "Syntax error") {
		t.Errorf("got %v, want a syntax error", err)
	}
}
