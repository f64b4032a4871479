package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
)

// TestBatching: a policy outside of the batch has a reason, and the batch has no expressions of it.
func TestBatching(t *testing.T) {
	const nested = "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a + b + c > 0)))"
	for name, tt := range map[string]struct{ spec, want string }{
		"in the batch": {spec: "validations: [{expression: 'object.spec.containers.size() > 0'}]"},
		"mutations": {
			spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]",
			want: "it has no validations",
		},
		"params":      {spec: "paramKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: 'params != null'}]"},
		"a Namespace": {spec: "validations: [{expression: 'namespaceObject != null'}]"},
		"a Namespace in a condition": {
			spec: "variables: [{name: ns, expression: 'namespaceObject.metadata.name'}]\n" +
				"matchConditions: [{name: c, expression: 'variables.ns != \"\"'}]\nvalidations: [{expression: 'true'}]",
			want: "spec.matchConditions[0].expression: namespaceObject has another value in a match condition",
		},
		"a whole Namespace in a variable": {
			spec: "variables: [{name: ns, expression: 'namespaceObject'}]\nvalidations: [{expression: 'variables.ns != null'}]",
			want: "spec.variables[0].expression: its value has the static type of a part of namespaceObject",
		},
		"lookups": {
			spec: "lookups: [" + sameHost + "]\nvalidations: [{expression: 'lookups.sameHost == []'}]",
			want: "it reads lookups, whose lists have no bounds before the request",
		},
		"options": {spec: "validations: [{expression: 'request.options != null'}]", want: "it reads request.options"},
		"an authorizer": {
			spec: "validations: [{expression: 'true'}, {expression: 'authorizer.path(\"/\").check(\"get\").allowed()'}]",
		},
		"an authorizer in a condition": {
			spec: "matchConditions: [{name: c, expression: 'authorizer.path(\"/\").check(\"get\").allowed()'}]\nvalidations: [{expression: 'true'}]",
			want: "spec.matchConditions[0].expression: a match condition that asks the authorizer is evaluated alone",
		},
		"a list of words": {
			spec: "variables: [{name: words, expression: '[\"a\", \"b\"]'}]\nvalidations: [{expression: '" +
				"object.spec.containers.all(c, c.env.all(e, variables.words.all(w, !e.value.contains(e.name + w))))'}]",
		},
		"a function": {
			spec: "variables: [{name: x, expression: '[1].flatten(object.spec.containers.size()).size()'}]\n" +
				"validations: [{expression: 'variables.x == 1'}]",
			want: "spec.variables[0].expression: the cost of flatten has no bound",
		},
		"one expression": {
			spec: "validations: [{expression: '[1,2,3,4,5,6,7,8,9].all(x, [1,2,3,4,5,6,7,8,9].all(y, " +
				"object.spec.containers.all(z, " + nested + ")))'}]",
			want: "spec.validations[0].expression: its cost can be",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, "p", tt.spec)
			got := sharedCompiler.Batching(p)
			if len(got.Alone) < len(tt.want) || got.Alone[:len(tt.want)] != tt.want || (tt.want == "") != (got.Alone == "") {
				t.Errorf("got the reason %q, want %q", got.Alone, tt.want)
			}
			if (got.Alone == "") != (got.Sizes > 0) {
				t.Errorf("got %d sizes with the reason %q", got.Sizes, got.Alone)
			}
			if inBatch := mustCompile(t, sharedCompiler, p).quick != nil; inBatch != (got.Alone == "") {
				t.Errorf("the batch evaluates it: %t, with the reason %q", inBatch, got.Alone)
			}
		})
	}
}

// TestEvaluatedPaths: what a call reports are the evaluations of the batch, and those outside of it.
func TestEvaluatedPaths(t *testing.T) {
	group := groupFrom(t, map[string]string{
		"a": "validations: [{expression: 'true'}]",
		"b": "validations: [{expression: 'false'}]",
		"c": "matchConditions: [{name: no, expression: 'false'}]\nvalidations: [{expression: 'false'}]",
		"d": "matchConditions: [{name: fails, expression: 'object.no == 1'}]\nvalidations: [{expression: 'true'}]",
		"e": "validations: [{expression: 'request.options != null'}]",
	})
	var got []int
	host := Environment{Now: time.Now, Evaluated: func(batch, alone int) { got = append(got, batch, alone) }}
	evaluate(t, group, podInput(t, admission.Create).review(t), host)
	if diff := cmp.Diff([]int{3, 2}, got); diff != "" {
		t.Errorf("evaluations in the batch and alone (-want +got):\n%s", diff)
	}
}
