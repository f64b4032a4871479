package typecheck

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckOfApplyConfigurations(t *testing.T) {
	const at = "spec.mutations[0].applyConfiguration.expression: "
	tests := map[string]struct {
		expression string
		kinds      []string
		want       []string
	}{
		"right": {
			expression: "Object{spec: Object.spec{hostNetwork: true, containers: object.spec.containers.map(c, " +
				"Object.spec.containers{name: c.name, image: 'a'})}}",
		},
		"labels":               {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"},
		"a map for an object":  {expression: "Object{spec: {'hostNetwork': true}}"},
		"maps in a list":       {expression: "Object{spec: Object.spec{containers: [{'name': 'a'}]}}"},
		"a part of the object": {expression: "Object{spec: Object.spec{securityContext: object.spec.securityContext}}"},
		"an optional field":    {expression: "Object{spec: Object.spec{?nodeName: optional.of('a')}}"},
		"a quantity": {
			expression: "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', resources: " +
				"Object.spec.containers.resources{limits: {'cpu': '1'}}}]}}",
		},
		"misspelt": {
			expression: "Object{spec: Object.spec{hostNetwrk: true}}",
			want:       []string{at + "Pod has no field spec.hostNetwrk, did you mean hostNetwork?"},
		},
		"misspelt at the top": {
			expression: "Object{sepc: Object.spec{hostNetwork: true}}",
			want:       []string{at + "Pod has no field sepc, did you mean spec?"},
		},
		"misspelt type": {
			expression: "Object{spec: Object.sepc{hostNetwork: true}}",
			want: []string{
				at + "Pod has no field sepc, did you mean spec?",
				at + "for Pod: the field spec takes Object.spec, and the value is Object.sepc at column 12",
			},
		},
		"misspelt in a list": {
			expression: "Object{spec: Object.spec{containers: [Object.spec.containers{nam: 'a'}]}}",
			want:       []string{at + "Pod has no field spec.containers[*].nam, did you mean name?"},
		},
		"a value that cannot fit": {
			expression: "Object{spec: Object.spec{hostNetwork: 'yes'}}",
			want:       []string{at + "for Pod: the field spec.hostNetwork takes bool, and the value is string at column 37"},
		},
		"a value in a list": {
			expression: "Object{spec: Object.spec{containers: [Object.spec.containers{name: 1}]}}",
			want: []string{
				at + "for Pod: the field spec.containers[*].name takes string, and the value is int at column 66",
			},
		},
		"a label that is a number": {
			expression: "Object{metadata: Object.metadata{labels: {'a': 1}}}",
			want: []string{
				at + "for Pod: the field metadata.labels takes map(string, string), and the value is map(string, int) at column 40",
			},
		},
		"an element without its key": {
			expression: "Object{spec: Object.spec{containers: [Object.spec.containers{image: 'a'}]}}",
			want:       []string{at + "for Pod: an element of spec.containers does not have the key name, by which the list is merged: add it"},
		},
		"a key that is optional": {expression: "Object{spec: Object.spec{containers: [Object.spec.containers{?name: optional.of('a')}]}}"},
		"a key with a default": {
			expression: "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'a', ports: " +
				"[Object.spec.containers.ports{containerPort: 1}]}]}}",
		},
		"several kinds": {
			expression: "Object{spec: Object.spec{replicsa: 1}}",
			kinds:      []string{"Deployment", "StatefulSet"},
			want:       []string{at + "Deployment and StatefulSet have no field spec.replicsa, did you mean replicas?"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.kinds == nil {
				tt.kinds = []string{"Pod"}
			}
			spec := "mutations:\n- patchType: ApplyConfiguration\n  applyConfiguration:\n    expression: >-\n      " + tt.expression + "\n"
			if diff := cmp.Diff(tt.want, check(t, spec, "", tt.kinds...)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckOfJSONPatches(t *testing.T) {
	const at = "spec.mutations[0].jsonPatch.expression: "
	const six = " The operations are add, remove, replace, move, copy, test"
	tests := map[string]struct {
		expression string
		want       []string
	}{
		"right":   {expression: `JSONPatch{op: "replace", path: "/spec/hostNetwork", value: true}`},
		"a label": {expression: `JSONPatch{op: "add", path: "/metadata/labels/a~1b", value: "c"}`},
		"the end of a list": {
			expression: `JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "a"}}`,
		},
		"an object as a map": {
			expression: `JSONPatch{op: "add", path: "/spec/securityContext", value: {"runAsNonRoot": true}}`,
		},
		"a path that is made": {
			expression: `JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"), value: "c"}`,
		},
		"a value that is made": {
			expression: `JSONPatch{op: "add", path: "/spec/hostNetwork", value: object.spec.hostNetwork}`,
		},
		"a move": {expression: `JSONPatch{op: "move", from: "/metadata/labels/a", path: "/metadata/labels/b"}`},
		"an unknown operation": {
			expression: `JSONPatch{op: "repalce", path: "/spec/hostNetwork", value: true}`,
			want:       []string{at + `for Pod: JSONPatch has no operation "repalce", did you mean replace?` + six},
		},
		"nothing similar": {
			expression: `JSONPatch{op: "upsert", path: "/spec/hostNetwork", value: true}`,
			want:       []string{at + `for Pod: JSONPatch has no operation "upsert".` + six},
		},
		"no operation": {
			expression: `JSONPatch{path: "/spec/hostNetwork", value: true}`,
			want:       []string{at + "for Pod: JSONPatch needs the field op: one of add, remove, replace, move, copy, test"},
		},
		"no path": {
			expression: `JSONPatch{op: "remove"}`,
			want:       []string{at + "for Pod: the JSONPatch operation remove needs the field path"},
		},
		"no value": {
			expression: `JSONPatch{op: "add", path: "/spec/hostNetwork"}`,
			want:       []string{at + "for Pod: the JSONPatch operation add needs the field value"},
		},
		"no from": {
			expression: `JSONPatch{op: "copy", path: "/spec/hostNetwork"}`,
			want:       []string{at + "for Pod: the JSONPatch operation copy needs the field from"},
		},
		"an unknown field": {
			expression: `JSONPatch{op: "add", pth: "/spec/hostNetwork", value: true}`,
			want: []string{
				at + "for Pod: JSONPatch has no field pth: its fields are op, path, from, value",
				at + "for Pod: the JSONPatch operation add needs the field path",
			},
		},
		"a misspelt path": {
			expression: `JSONPatch{op: "add", path: "/spec/hostNetwrk", value: true}`,
			want:       []string{at + "Pod has no field spec.hostNetwrk, did you mean hostNetwork?"},
		},
		"a misspelt path in a list": {
			expression: `JSONPatch{op: "add", path: "/spec/containers/0/imag", value: "a"}`,
			want:       []string{at + "Pod has no field spec.containers[*].imag, did you mean image?"},
		},
		"a misspelt source": {
			expression: `JSONPatch{op: "copy", from: "/metadata/nme", path: "/metadata/labels/a"}`,
			want:       []string{at + "Pod has no field metadata.nme, did you mean name?"},
		},
		"a path without a slash": {
			expression: `JSONPatch{op: "add", path: "spec/hostNetwork", value: true}`,
			want:       []string{at + `for Pod: the path "spec/hostNetwork" of JSONPatch does not begin with /`},
		},
		"a path below a string": {
			expression: `JSONPatch{op: "add", path: "/metadata/name/x", value: true}`,
			want: []string{
				at + `for Pod: the path "/metadata/name/x" of JSONPatch goes below metadata.name, which is string`,
			},
		},
		"a slash in a key": {
			expression: `JSONPatch{op: "add", path: "/metadata/labels/example.com/a", value: "b"}`,
			want: []string{at + `for Pod: the path "/metadata/labels/example.com/a" of JSONPatch goes below metadata.labels[*], which is string: ` +
				`a / in a key is written as ~1, as in "/metadata/labels/example.com~1a", or with jsonpatch.escapeKey`},
		},
		"a slash in a key that is a sum": {
			expression: `JSONPatch{op: "add", path: "/metadata/annotations/" + "a/b/c", value: "b"}`,
			want: []string{at + `for Pod: the path "/metadata/annotations/a/b/c" of JSONPatch goes below ` +
				`metadata.annotations[*], which is string: ` +
				`a / in a key is written as ~1, as in "/metadata/annotations/a~1b~1c", or with jsonpatch.escapeKey`},
		},
		"an element without its key": {
			expression: `JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{image: "a"}}`,
			want:       []string{at + "for Pod: an element of spec.containers does not have the key name, by which the list is merged: add it"},
		},
		"a map without its key": {
			expression: `JSONPatch{op: "add", path: "/spec/containers/-", value: {"image": "a"}}`,
			want:       []string{at + "for Pod: an element of spec.containers does not have the key name, by which the list is merged: add it"},
		},
		"maps of a list without their key": {
			expression: `JSONPatch{op: "replace", path: "/spec/containers", value: [{"ports": [{"hostPort": 1}]}]}`,
			want: []string{
				at + "for Pod: an element of spec.containers[*].ports does not have the key containerPort, by which the list is merged: add it",
				at + "for Pod: an element of spec.containers does not have the key name, by which the list is merged: add it",
			},
		},
		"a map with keys that are made": {
			expression: `JSONPatch{op: "add", path: "/spec/containers/-", value: {object.metadata.name: "a"}}`,
		},
		"a value that cannot fit": {
			expression: `JSONPatch{op: "add", path: "/spec/hostNetwork", value: "yes"}`,
			want:       []string{at + `for Pod: the path "/spec/hostNetwork" of JSONPatch takes bool, and the value is string`},
		},
		"a value for a list": {
			expression: `JSONPatch{op: "add", path: "/spec/containers", value: "a"}`,
			want: []string{
				at + `for Pod: the path "/spec/containers" of JSONPatch takes list(Object.spec.containers), and the value is string`,
			},
		},
		"a label that is a number": {
			expression: `JSONPatch{op: "add", path: "/metadata/labels/a", value: 1}`,
			want:       []string{at + `for Pod: the path "/metadata/labels/a" of JSONPatch takes string, and the value is int`},
		},
		"a misspelt field of the object": {
			expression: `JSONPatch{op: "add", path: "/metadata/labels/a", value: object.metadata.nme}`,
			want:       []string{at + "Pod has no field metadata.nme, did you mean name?"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := "mutations:\n- patchType: JSONPatch\n  jsonPatch:\n    expression: >-\n      [" + tt.expression + "]\n"
			if diff := cmp.Diff(tt.want, check(t, spec, "", "Pod")); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
