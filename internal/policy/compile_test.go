package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestCompileErrors(t *testing.T) {
	const undeclared = "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope == 1\n | ^"
	tests := map[string]struct {
		spec string
		want []string
	}{
		"syntax error": {
			spec: `validations: [{expression: 'object.spec.'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "object.spec.": compilation failed: ERROR: <input>:1:13: Syntax error: no viable alternative at input '.'` + "\n | object.spec.\n | ............^"},
		},
		"undeclared variable in the second validation": {
			spec: `validations: [{expression: 'true'}, {expression: 'nope == 1'}]`,
			want: []string{`spec.validations[1].expression: Invalid value: "nope == 1": ` + undeclared},
		},
		"in the second line": {
			spec: "validations: [{expression: \"true &&\\n  nope == 1\"}]",
			want: []string{`spec.validations[0].expression: Invalid value: "true &&\n  nope == 1": compilation failed: ERROR: <input>:2:3: undeclared reference to 'nope' (in container '')` + "\n |   nope == 1\n | ..^"},
		},
		"validation that is no bool": {
			spec: `validations: [{expression: '1 + 1'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "1 + 1": must evaluate to bool but got int`},
		},
		"matchCondition that is no bool": {
			spec: `{matchConditions: [{name: a, expression: 'true'}, {name: b, expression: '"x"'}], validations: [{expression: 'true'}]}`,
			want: []string{`spec.matchConditions[1].expression: Invalid value: "\"x\"": must evaluate to bool but got string`},
		},
		"messageExpression that is no string": {
			spec: `validations: [{expression: 'true'}, {expression: 'true', messageExpression: '1'}]`,
			want: []string{`spec.validations[1].messageExpression: Invalid value: "1": must evaluate to string but got int`},
		},
		"auditAnnotation that is no string": {
			spec: `auditAnnotations: [{key: a, valueExpression: '"x"'}, {key: b, valueExpression: 'object.name'}]`,
			want: []string{`spec.auditAnnotations[1].valueExpression: Invalid value: "object.name": must evaluate to one of [string null_type] but got dyn`},
		},
		"messageExpression that asks the authorizer": {
			spec: `validations: [{expression: 'true', messageExpression: 'authorizer.path("/").check("get").reason()'}]`,
			want: []string{`spec.validations[0].messageExpression: Invalid value: "authorizer.path(\"/\").check(\"get\").reason()": a message cannot use authorizer: use it in a variable, or in the validation: compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')` + "\n | authorizer.path(\"/\").check(\"get\").reason()\n | ^"},
		},
		"params without paramKind": {
			spec: `validations: [{expression: 'params == null'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "params == null": params needs spec.paramKind, and a binding with paramRef: add both: compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')` + "\n | params == null\n | ^"},
		},
		"types that do not fit": {
			spec: `validations: [{expression: 'request.dryRun == 1'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "request.dryRun == 1": compilation failed: ERROR: <input>:1:16: found no matching overload for '_==_' applied to '(bool, int)'` + "\n | request.dryRun == 1\n | ...............^"},
		},
		"unknown field of request": {
			spec: `validations: [{expression: 'request.nope == 1'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "request.nope == 1": there is no field nope: the fields are dryRun, kind, name, namespace, operation, options, requestKind, requestResource, requestSubResource, resource, subResource, userInfo: compilation failed: ERROR: <input>:1:8: undefined field 'nope'` + "\n | request.nope == 1\n | .......^"},
		},
		"variable below the one that reads it": {
			spec: `{variables: [{name: a, expression: 'variables.b'}, {name: b, expression: '1'}], validations: [{expression: 'variables.b == 1'}]}`,
			want: []string{`spec.variables[0].expression: Invalid value: "variables.b": variables can use only variables defined before them, and b is spec.variables[1]: define it before this one: compilation failed: ERROR: <input>:1:10: undefined field 'b'` + "\n | variables.b\n | .........^"},
		},
		"variables that are not declared at all": {
			spec: `validations: [{expression: 'variables.b == 1'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "variables.b == 1": there is no variable b: define it in spec.variables: compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')` + "\n | variables.b == 1\n | ^"},
		},
		"all are reported, in the order of evaluation": {
			spec: `{variables: [{name: a, expression: 'nope == 1'}], matchConditions: [{name: c, expression: 'nope == 1'}], validations: [{expression: 'nope == 1', messageExpression: '1'}]}`,
			want: []string{
				`spec.variables[0].expression: Invalid value: "nope == 1": ` + undeclared,
				`spec.matchConditions[0].expression: Invalid value: "nope == 1": ` + undeclared,
				`spec.validations[0].expression: Invalid value: "nope == 1": ` + undeclared,
				`spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int`,
			},
		},
		"a shared program that does not compile is reported each time": {
			spec: `validations: [{expression: 'nope == 1'}, {expression: 'nope == 1'}]`,
			want: []string{`spec.validations[0].expression: Invalid value: "nope == 1": ` + undeclared, `spec.validations[1].expression: Invalid value: "nope == 1": ` + undeclared},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, errs := sharedCompiler.Compile(policyFrom(t, "p", tc.spec))
			var got []string
			for _, err := range errs {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCompileErrorsAreBounded: they have to fit into a status condition.
func TestCompileErrorsAreBounded(t *testing.T) {
	expression := strings.Repeat("é + ", 4000) + "1"
	_, errs := sharedCompiler.Compile(policyFrom(t, "p", "validations: [{expression: '"+expression+"'}]"))
	if len(errs) != 1 {
		t.Fatalf("%d errors, want 1", len(errs))
	}
	if n := len(errs[0].Error()); n > 2*maxErrorDetail+200 {
		t.Errorf("the error has %d bytes", n)
	}
}

// TestInvalidPolicyAffectsNoOther: the failurePolicy of a policy that does not compile
// decides, and the results of other policies do not change.
func TestInvalidPolicyAffectsNoOther(t *testing.T) {
	const compileError = `WebhookPolicy 'broken' denied request: spec.validations[0].expression: Invalid value: "nope": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope'`
	tests := map[string]struct {
		broken    string
		neighbour string
		want      string // how the message begins; empty if allowed
		decision  Decision
	}{
		"Fail":                             {"validations: [{expression: 'nope'}]\nfailurePolicy: Fail", "true", compileError, DecisionError},
		"default":                          {"validations: [{expression: 'nope'}]", "true", compileError, DecisionError},
		"Ignore":                           {"validations: [{expression: 'nope'}]\nfailurePolicy: Ignore", "true", "", DecisionError},
		"Ignore beside a denial":           {"validations: [{expression: 'nope'}]\nfailurePolicy: Ignore", "false", "WebhookPolicy 'sound' denied request: failed expression: false", DecisionError},
		"Fail, but only warns":             {"validations: [{expression: 'nope'}]\nbindings: [{name: b, validationActions: [Warn]}]", "true", "", DecisionError},
		"broken variable that is not read": {"{variables: [{name: a, expression: 'nope'}], validations: [{expression: 'true'}]}", "true", "WebhookPolicy 'broken' denied request: spec.variables[0].expression: ", DecisionError},
		"does not match":                   {"validations: [{expression: 'nope'}]\nmatchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [nodes], operations: ['*']}]}", "true", "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			broken, errs := sharedCompiler.Compile(policyFrom(t, "broken", tc.broken))
			if len(errs) == 0 {
				t.Fatal("the broken policy compiles")
			}
			sound, errs := sharedCompiler.Compile(policyFrom(t, "sound", "validations: [{expression: '"+tc.neighbour+"'}]"))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			group := NewGroup([]*Compiled{sound, broken})
			decisions := map[string]Decision{}
			host := hostOf()
			host.Observe = observeInto(decisions)
			resp, err := group.Validate(t.Context(), podInput(t, admission.Create).review(t), host)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Allowed != (tc.want == "") {
				t.Fatalf("allowed = %t, want message %q", resp.Allowed, tc.want)
			}
			if !resp.Allowed && !strings.HasPrefix(resp.Result.Message, tc.want) {
				t.Errorf("message = %q, want %q", resp.Result.Message, tc.want)
			}
			if want := map[string]Decision{"true": DecisionAllow, "false": DecisionDeny}[tc.neighbour]; decisions["sound"] != want || decisions["broken"] != tc.decision {
				t.Errorf("decisions = %v, want sound %s and broken %s", decisions, want, tc.decision)
			}
		})
	}
}

// TestCompileKeepsNothingOfThePolicy: it neither changes its argument nor looks
// at it again.
func TestCompileKeepsNothingOfThePolicy(t *testing.T) {
	reason := metav1.StatusReasonForbidden
	p := policyFrom(t, "p", `
matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], resourceNames: [web]}]
  excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [nodes], operations: [CREATE]}]
matchConditions: [{name: c, expression: 'true'}]
variables: [{name: v, expression: 'false'}]
validations: [{expression: 'variables.v', message: m}]
bindings: [{name: b, validationActions: [Deny, Audit]}]
failurePolicy: Fail
`)
	p.Spec.Validations[0].Reason = &reason
	before := p.DeepCopy()
	compiled, errs := sharedCompiler.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("the policy was changed:\n%s", diff)
	}
	group := NewGroup([]*Compiled{compiled})
	in := podInput(t, admission.Create)
	want := decideOurs(t, group, in, testWorld)

	*p.Spec.Validations[0].Reason = "Other"
	*p.Spec.FailurePolicy = "Ignore"
	p.Spec.Validations[0].Message = "other"
	p.Spec.MatchConditions[0].Name = "other"
	p.Spec.Bindings[0].ValidationActions[0] = "Warn"
	for _, rules := range [][]string{p.Spec.MatchConstraints.ResourceRules[0].Resources, p.Spec.MatchConstraints.ResourceRules[0].ResourceNames, p.Spec.MatchConstraints.ResourceRules[0].APIGroups} {
		rules[0] = "other"
	}
	p.Spec.MatchConstraints.ExcludeResourceRules[0].Resources[0] = "pods"
	if diff := cmp.Diff(want, decideOurs(t, group, in, testWorld)); diff != "" || want.Allowed || want.Code != 403 {
		t.Errorf("answer %s changed with the policy:\n%s", want, diff)
	}
}

func TestProgramsAreSharedAndForgotten(t *testing.T) {
	g := NewWithT(t)
	compiler := NewCompiler()
	first := mustCompile(t, compiler, policyFrom(t, "first", `validations: [{expression: 'object.a == 1', message: one, messageExpression: '"m"'}]`))
	second := mustCompile(t, compiler, policyFrom(t, "second", `{matchConditions: [{name: c, expression: 'object.a == 1'}], validations: [{expression: 'object.a == 1', message: two}]}`))
	if first.programs[0] != second.programs[1] {
		t.Error("two validations with one expression have two programs")
	}
	if first.programs[0] == second.programs[0] {
		t.Error("a match condition shares the program of a validation")
	}
	if n := compiler.counted.Programs(); n != 3 {
		t.Errorf("the cache has %d entries, want 3", n)
	}
	runtime.KeepAlive(first)
	g.Eventually(func() int { return cached(compiler) }).WithTimeout(time.Minute).Should(Equal(2), "after the first policy is gone")
	runtime.KeepAlive(second)
	g.Eventually(func() int { return cached(compiler) }).WithTimeout(time.Minute).Should(BeZero())
}

func cached(c *Compiler) int {
	runtime.GC()
	return c.counted.Programs()
}

func mustCompile(tb testing.TB, c *Compiler, p *v1alpha1.WebhookPolicy) *Compiled {
	tb.Helper()
	compiled, errs := c.Compile(p)
	if len(errs) > 0 {
		tb.Fatal(errs)
	}
	return compiled
}

// TestSharedProgramsKeepEachPolicysMessage: what is shared is the expression,
// not the words and the reason beside it.
func TestSharedProgramsKeepEachPolicysMessage(t *testing.T) {
	compiler := NewCompiler()
	for name, want := range map[string]string{"one": "422 Invalid: WebhookPolicy 'one' denied request: one", "two": "403 Forbidden: WebhookPolicy 'two' denied request: two"} {
		spec := "validations: [{expression: 'object == null', message: " + name + "}]"
		if name == "two" {
			spec = "validations: [{expression: 'object == null', message: two, reason: Forbidden}]"
		}
		compiled := mustCompile(t, compiler, policyFrom(t, name, spec))
		group := NewGroup([]*Compiled{compiled})
		if got := decideOurs(t, group, podInput(t, admission.Create), testWorld).String(); got != want {
			t.Errorf("answer = %q, want %q", got, want)
		}
		t.Cleanup(func() { runtime.KeepAlive(compiled) })
	}
	if n := cached(compiler); n != 1 {
		t.Errorf("%d programs, want 1", n)
	}
}

func TestManyPoliciesCompileConcurrently(t *testing.T) {
	compiler := NewCompiler()
	done := make(chan *Compiled)
	for i := range 8 {
		go func() {
			c, _ := compiler.Compile(policyFrom(t, "p", fmt.Sprintf("validations: [{expression: 'object.a == %d'}]", i%2)))
			done <- c
		}()
	}
	var all []*Compiled
	for range 8 {
		all = append(all, <-done)
	}
	if n := cached(compiler); n != 2 {
		t.Errorf("%d programs in the cache, want 2", n)
	}
	runtime.KeepAlive(all)
}

// TestProgramsShareFunctions: a compiled policy does not have a table of all functions
// of CEL for each of its expressions.
func TestProgramsShareFunctions(t *testing.T) {
	const most = 10 << 10 // with the tables it takes 21 KiB
	compiler := NewCompiler()
	policies := make([]*Compiled, 100)
	before := heapInUse()
	for i := range policies {
		policies[i], _ = compiler.Compile(policyFrom(t, "p", fmt.Sprintf("validations: [{expression: 'object.metadata.name != \"a%d\"'}]", i)))
	}
	if size := (heapInUse() - before) / int64(len(policies)); size > most {
		t.Errorf("%d bytes for each policy, want at most %d", size, most)
	}
	runtime.KeepAlive(policies)
	runtime.KeepAlive(compiler)
}
