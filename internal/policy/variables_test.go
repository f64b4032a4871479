package policy

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// TestVariablesBelongToTheirPolicy: the type that all policies with variables
// compile with has the variables of one alone, each with its own type.
func TestVariablesBelongToTheirPolicy(t *testing.T) {
	compiler := NewCompiler()
	tests := []struct {
		name, spec string
		want       string // part of the error; empty if it compiles
	}{
		{"int", `{variables: [{name: a, expression: '1'}], validations: [{expression: 'variables.a + 1 == 2'}]}`, ""},
		{"the same name, a string", `{variables: [{name: a, expression: '"x"'}], validations: [{expression: 'variables.a + 1 == 2'}]}`, "found no matching overload for '_+_' applied to '(string, int)'"},
		{"the same name, a list", `{variables: [{name: a, expression: '["x"]'}], validations: [{expression: 'variables.a[0] == 1'}]}`, "found no matching overload for '_==_' applied to '(string, int)'"},
		{"the same name, a map", `{variables: [{name: a, expression: '{"x": 1}'}], validations: [{expression: 'variables.a["x"] == 1'}]}`, ""},
		{"the same name, dyn", `{variables: [{name: a, expression: 'object'}], validations: [{expression: 'variables.a == 1'}]}`, ""},
		{"of another policy", `{variables: [{name: b, expression: '1'}], validations: [{expression: 'variables.a == 1'}]}`, "undefined field 'a'"},
		{"of another policy, in a variable", `{variables: [{name: b, expression: 'variables.a'}], validations: [{expression: 'variables.b == 1'}]}`, "undefined field 'a'"},
		{"the first reads the second", `{variables: [{name: b, expression: 'variables.c'}, {name: c, expression: '1'}], validations: [{expression: 'true'}]}`, "undefined field 'c'"},
		{"itself", `{variables: [{name: b, expression: 'variables.b'}], validations: [{expression: 'true'}]}`, "undefined field 'b'"},
		{"the name that the compiler uses", `{variables: [{name: b, expression: 'variables.any'}], validations: [{expression: 'true'}]}`, "undefined field 'any'"},
		{"that name, declared", `{variables: [{name: any, expression: '1'}, {name: b, expression: 'variables.any + 1'}], validations: [{expression: 'variables.b == 2 && variables.any == 1'}]}`, ""},
		{"params in the variables of one", `{paramKind: {apiVersion: v1, kind: ConfigMap}, variables: [{name: a, expression: 'params'}], validations: [{expression: 'variables.a == 1'}]}`, ""},
		{"and not of the other", `{variables: [{name: a, expression: 'params'}], validations: [{expression: 'variables.a == 1'}]}`, "undeclared reference to 'params'"},
		{"the int again", `{variables: [{name: a, expression: '1'}], validations: [{expression: 'variables.a + 1 == 2'}]}`, ""},
	}
	var kept []*Compiled
	for range 2 { // the second time everything is in the cache
		for _, tc := range tests {
			compiled, errs := compiler.Compile(policyFrom(t, "p", tc.spec))
			kept = append(kept, compiled)
			if got := fmt.Sprint(errs.ToAggregate()); (len(errs) == 0) != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: errors = %s, want %q", tc.name, got, tc.want)
			}
		}
	}
	runtime.KeepAlive(kept)
}

// TestProgramsWithVariablesAreShared: by the expression, and the names and
// types of the variables.
func TestProgramsWithVariablesAreShared(t *testing.T) {
	compiler := NewCompiler()
	one := mustCompile(t, compiler, policyFrom(t, "one", `{variables: [{name: a, expression: 'object.a'}], validations: [{expression: 'variables.a == 1'}, {expression: 'object.b == 1'}]}`))
	two := mustCompile(t, compiler, policyFrom(t, "two", `{variables: [{name: a, expression: 'object.z'}], validations: [{expression: 'variables.a == 1'}, {expression: 'object.b == 1'}]}`))
	other := mustCompile(t, compiler, policyFrom(t, "other", `{variables: [{name: a, expression: '1'}], validations: [{expression: 'variables.a == 1'}]}`))
	plain := mustCompile(t, compiler, policyFrom(t, "plain", `validations: [{expression: 'object.b == 1'}]`))
	if one.programs[0] != two.programs[0] || one.programs[1] != two.programs[1] || one.programs[1] != plain.programs[0] {
		t.Error("equal expressions have programs of their own")
	}
	if one.programs[0] == other.programs[0] {
		t.Error("expressions that read variables of different types share a program")
	}
	for _, tc := range []struct {
		compiled *Compiled
		object   string
		want     bool
	}{{one, `{"a":1,"b":1,"z":2}`, true}, {two, `{"a":1,"b":1,"z":2}`, false}, {one, `{"a":2,"b":1,"z":1}`, false}, {two, `{"a":2,"b":1,"z":1}`, true}, {other, `{"a":2}`, true}} {
		raw := podInput(t, admission.Create).review(t)
		raw.Object.Raw = []byte(tc.object)
		group := NewGroup([]*Compiled{tc.compiled})
		if resp := evaluate(t, group, raw, hostOf()); resp.Allowed != tc.want {
			t.Errorf("%s with %s: allowed = %t", tc.compiled.name, tc.object, resp.Allowed)
		}
	}
}

// TestEverythingConcurrently: many callers of both phases, with params, variables,
// namespaces and an authorizer, while policies are compiled and groups
// replaced.
func TestEverythingConcurrently(t *testing.T) {
	compiler := NewCompiler()
	build := func(version int) *Group {
		var policies []*Compiled
		for i := range 4 {
			name, variable := fmt.Sprintf("p%d", i), fmt.Sprintf("v%d", (version+i)%3)
			spec := ofConfigMaps + "variables: [{name: " + variable + ", expression: 'params.data.max + namespaceObject.metadata.name'}]\n" +
				"matchConditions: [{name: c, expression: '" + check("allow") + ".allowed()'}]\n" +
				"validations: [{expression: 'variables." + variable + " == \"1shop\" && object.spec.containers.size() == 2', message: second}]\n" +
				mutations(label("a"+name, "variables."+variable), patching(op("add", "/metadata/labels/version", fmt.Sprintf(`"%d"`, version)))) +
				bound("{name: b, paramRef: {selector: {matchLabels: {set: a}}, parameterNotFoundAction: Deny}, matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}}")
			policies = append(policies, mustCompile(t, compiler, policyFrom(t, name, spec)))
		}
		return NewGroup(policies)
	}
	var current atomic.Pointer[Group]
	current.Store(build(0))
	host := testWorld.host()
	var rechecked, repeats atomic.Int64
	var checks sync.WaitGroup
	host.Recheck = &Recheck{
		First: 2, Every: 5,
		Later: func(check func(context.Context)) { checks.Go(func() { rechecked.Add(1); check(t.Context()) }) },
		Found: func(Repeat) { repeats.Add(1) },
	}
	raw := podInput(t, admission.Create).review(t)
	var callers, swapper sync.WaitGroup
	stop := make(chan struct{})
	swapper.Go(func() {
		for version := 1; ; version++ {
			select {
			case <-stop:
				return
			default:
				current.Store(build(version % 7))
			}
		}
	})
	for i := range 16 {
		callers.Go(func() {
			for range 20 {
				group := current.Load()
				if i%2 == 0 {
					resp, err := group.Validate(t.Context(), raw, host)
					if err != nil || resp.Allowed || strings.Count(resp.Result.Message, ": second") != 4 {
						t.Errorf("answer = %+v, %v", resp, err)
					}
					continue
				}
				resp, err := group.Mutate(t.Context(), raw, host)
				if err != nil || !resp.Allowed || strings.Count(string(resp.Patch), `"2shop"`) != 4 || strings.Count(string(resp.Patch), "version") != 1 {
					t.Errorf("answer = %+v, %v", resp, err)
				}
			}
		})
	}
	callers.Wait()
	checks.Wait()
	close(stop)
	swapper.Wait()
	if r, n := repeats.Load(), rechecked.Load(); r != 0 || n == 0 {
		t.Errorf("%d policies are said to change their own result in %d checks", r, n)
	}
}
