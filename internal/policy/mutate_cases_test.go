package policy

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func applying(expression string) string {
	return "{patchType: ApplyConfiguration, applyConfiguration: {expression: '" + expression + "'}}"
}

func patching(operations ...string) string {
	return "{patchType: JSONPatch, jsonPatch: {expression: '[" + strings.Join(operations, ", ") + "]'}}"
}

func mutations(m ...string) string { return "mutations: [" + strings.Join(m, ", ") + "]\n" }

// op is one operation; value and from are expressions, and may be left out.
func op(kind, path, value string) string {
	if value == "" {
		return fmt.Sprintf(`JSONPatch{op: %q, path: %q}`, kind, path)
	}
	return fmt.Sprintf(`JSONPatch{op: %q, path: %q, value: %s}`, kind, path, value)
}

func move(kind, from, path string) string {
	return fmt.Sprintf(`JSONPatch{op: %q, from: %q, path: %q}`, kind, from, path)
}

func label(key, value string) string {
	return applying(`Object{metadata: Object.metadata{labels: {"` + key + `": ` + value + `}}}`)
}

const firstContainer = `Object.spec.containers{name: "app", `

// mutationCases are about "create pod" where on is empty. Want is part of the
// native answer under Fail; "unchanged" is an unchanged object.
var mutationCases = []nativeCase{
	{name: "add a label", spec: mutations(label("a", `"b"`)), want: `"a":"b"`},
	{name: "add a label to none", on: "bare pod", spec: mutations(label("a", `"b"`)), want: `"labels":{"a":"b"}`},
	{name: "change a label", spec: mutations(label("team", `"x"`)), want: `"team":"x"`},
	{name: "set a label to what it is", spec: mutations(label("team", `"shop"`)), want: "unchanged"},
	{name: "computed key", spec: mutations(applying(`Object{metadata: Object.metadata{labels: {request.operation: request.userInfo.username}}}`)), want: `"CREATE":"alice"`},
	{name: "nothing", spec: mutations(applying("Object{}")), want: "unchanged"},
	{name: "scalar field", spec: mutations(applying(`Object{spec: Object.spec{terminationGracePeriodSeconds: object.spec.terminationGracePeriodSeconds + 5}}`)), want: `"terminationGracePeriodSeconds":35`},
	{name: "bool field", spec: mutations(applying(`Object{spec: Object.spec{hostNetwork: true}}`)), want: `"hostNetwork":true`},
	{name: "quantity", spec: mutations(applying(`Object{spec: Object.spec{containers: [` + firstContainer + `resources: Object.spec.containers.resources{limits: {"cpu": "0.25"}}}]}}`)), want: `"cpu":"250m"`},
	{name: "int or string", spec: mutations(applying(`Object{spec: Object.spec{containers: [` + firstContainer + `livenessProbe: Object.spec.containers.livenessProbe{httpGet: Object.spec.containers.livenessProbe.httpGet{port: 81}}}]}}`)), want: `"port":81`},
	{name: "list merged by key", spec: mutations(applying(`Object{spec: Object.spec{containers: [` + firstContainer + `image: "new"}]}}`)), want: `"image":"new"`},
	{name: "list merged by key, new element", spec: mutations(applying(`Object{spec: Object.spec{containers: [Object.spec.containers{name: "mesh", image: "m"}]}}`)), want: `{"image":"m","name":"mesh"`},
	{name: "list of computed elements", spec: mutations(applying(`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`)), want: `"imagePullPolicy":"Always"`},
	{name: "list merged by two keys", spec: mutations(applying(`Object{spec: Object.spec{containers: [` + firstContainer + `ports: [Object.spec.containers.ports{containerPort: 8080, protocol: "TCP", name: "http"}, Object.spec.containers.ports{containerPort: 8080, protocol: "UDP"}]}]}}`)), want: `"name":"http"`},
	{name: "list merged by key, without its key", spec: mutations(applying(`Object{spec: Object.spec{containers: [Object.spec.containers{image: "m"}]}}`)), want: `{"image":"m","name":""`},
	{name: "list of elements with one key twice", spec: mutations(applying(`Object{spec: Object.spec{containers: [` + firstContainer + `image: "a"}, ` + firstContainer + `image: "b"}]}}`)), want: "duplicate entries for key"},
	{name: "set", spec: mutations(applying(`Object{metadata: Object.metadata{finalizers: ["example.com/a", "example.com/b"]}}`)), want: `"finalizers":["example.com/a","example.com/b"]`},
	{name: "set with a duplicate", spec: mutations(applying(`Object{metadata: Object.metadata{finalizers: ["a", "a"]}}`)), want: "duplicate entries"},
	{name: "atomic list", spec: mutations(applying(`Object{spec: Object.spec{containers: [` + firstContainer + `args: ["-v"]}]}}`)), want: "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args"},
	{name: "atomic map", spec: mutations(applying(`Object{spec: Object.spec{nodeSelector: {"a": "b"}}}`)), want: "may not mutate atomic arrays, maps or structs: .spec.nodeSelector"},
	{name: "unknown field", spec: mutations(applying(`Object{spec: Object.spec{nope: 1}}`)), want: "failed to convert patch object to typed object: .spec.nope: field not declared in schema"},
	{name: "wrong type name", spec: mutations(applying(`Object{spec: Object.wrong{hostNetwork: true}}`)), want: "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.spec\", which matches field name path from root Object type"},
	{name: "wrong kind of value", spec: mutations(applying(`Object{spec: Object.spec{hostNetwork: "yes"}}`)), want: "expected boolean, got"},
	{name: "scalar for an object", spec: mutations(applying(`Object{spec: "x"}`)), want: "expected map, got"},
	{name: "null field", spec: mutations(applying(`Object{spec: Object.spec{serviceAccountName: null}}`)), want: "failed to convert patch object to typed object: .spec.serviceAccountName: expected string, got"},
	{name: "removal by an optional", spec: mutations(applying(`Object{metadata: Object.metadata{?labels: optional.none()}}`)), want: "unchanged"},
	{name: "optional field", spec: mutations(applying(`Object{metadata: Object.metadata{?annotations: object.metadata.?labels.?team.hasValue() ? optional.of({"t": "y"}) : optional.none()}}`)), want: `"t":"y"`},
	{name: "run time error", spec: mutations(applying(`Object{metadata: Object.metadata{name: string(object.spec.nope)}}`)), want: "no such key: nope"},
	{name: "out of budget", spec: mutations(applying(`Object{metadata: Object.metadata{name: ` + tooCostly + ` ? "a" : "b"}}`)), want: "cost limit"},
	{name: "budget for each mutation", spec: mutations(strings.Split(strings.TrimSuffix(strings.Repeat(label("a", costly+` ? "1" : "2"`)+"|", 20), "|"), "|")...), want: `"a":"1"`},

	{name: "add", spec: mutations(patching(op("add", "/metadata/labels/a", `"b"`))), want: `"a":"b"`},
	{name: "add over a value", spec: mutations(patching(op("add", "/metadata/labels/team", `"b"`))), want: `"team":"b"`},
	{name: "add at the end", spec: mutations(patching(op("add", "/spec/containers/-", `Object.spec.containers{name: "mesh", image: "m"}`))), want: `{"image":"m","name":"mesh"`},
	{name: "add at the start", spec: mutations(patching(op("add", "/spec/containers/0", `Object.spec.containers{name: "mesh"}`))), want: `"containers":[{"name":"mesh"`},
	{name: "add at an index", spec: mutations(patching(op("add", "/spec/containers/1", `Object.spec.containers{name: "mesh"}`))), want: `"name":"mesh"`},
	{name: "add beyond the end", spec: mutations(patching(op("add", "/spec/containers/7", `Object.spec.containers{name: "mesh"}`))), want: "JSON Patch: "},
	{name: "add to a missing parent", spec: mutations(patching(op("add", "/spec/affinity/nodeAffinity", `Object.spec.affinity.nodeAffinity{}`))), want: "JSON Patch: add operation does not apply: doc is missing path"},
	{name: "add a map", on: "bare pod", spec: mutations(patching(op("add", "/metadata/labels", `{"a": "b"}`))), want: `"labels":{"a":"b"}`},
	{name: "add null", spec: mutations(patching(op("add", "/spec/hostname", "null"))), want: "unchanged"},
	{name: "add an object as an atomic", spec: mutations(patching(op("add", "/spec/nodeSelector", `{"a": "b"}`))), want: `"nodeSelector":{"a":"b"}`},
	{name: "add with a wrong type name", spec: mutations(patching(op("add", "/spec/containers/-", `Object.spec{containers: [Object.spec.wrong{}]}`))), want: "type mismatch: unexpected type name"},
	{name: "escaped key", spec: mutations(patching(`JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/x~y"), value: "1"}`)), want: `"example.com/x~y":"1"`},
	{name: "escaped by hand", spec: mutations(patching(op("replace", "/metadata/labels/app.kubernetes.io~1name", `"other"`))), want: `"app.kubernetes.io/name":"other"`},
	{name: "key with quotes", spec: mutations(patching(`JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("a\"b\\c<é"), value: "x\"<\u0001é"}`)), want: `"x\"`},
	{name: "remove", spec: mutations(patching(op("remove", "/metadata/labels/team", ""))), want: `"labels":{"app.kubernetes.io/name":"web"}`},
	{name: "remove an element", spec: mutations(patching(op("remove", "/spec/containers/0", ""))), want: `"containers":[{"image":"docker.io/side"`},
	{name: "remove what is not there", spec: mutations(patching(op("remove", "/metadata/labels/nope", ""))), want: "JSON Patch: "},
	{name: "remove a subtree", spec: mutations(patching(op("remove", "/metadata/annotations", ""))), want: `"labels"`},
	{name: "replace", spec: mutations(patching(op("replace", "/spec/containers/0/image", `"new"`))), want: `"image":"new"`},
	{name: "replace what is not there", spec: mutations(patching(op("replace", "/spec/hostname", `"new"`))), want: `"hostname":"new"`},
	{name: "replace by the same", spec: mutations(patching(op("replace", "/spec/serviceAccountName", `"default"`))), want: "unchanged"},
	{name: "replace a list", spec: mutations(patching(op("replace", "/spec/containers", `[Object.spec.containers{name: "only", image: "x"}]`))), want: `"containers":[{"image":"x","name":"only"`},
	{name: "replace a list by one computed", spec: mutations(patching(op("replace", "/spec/containers", `object.spec.containers.map(c, Object.spec.containers{name: c.name, image: "x"})`))), want: `"image":"x"`},
	{name: "move", spec: mutations(patching(move("move", "/metadata/labels/team", "/metadata/labels/squad"))), want: `"squad":"shop"`},
	{name: "move an element", spec: mutations(patching(move("move", "/spec/containers/0", "/spec/containers/1"))), want: `"containers":[{"image":"docker.io/side"`},
	{name: "move from nowhere", spec: mutations(patching(move("move", "/metadata/labels/nope", "/metadata/labels/squad"))), want: "JSON Patch: "},
	{name: "copy", spec: mutations(patching(move("copy", "/metadata/labels/team", "/metadata/labels/squad"))), want: `"squad":"shop"`},
	{name: "copy to a missing parent", spec: mutations(patching(move("copy", "/metadata/labels/team", "/spec/affinity/x"))), want: "JSON Patch: "},
	{name: "test that holds", spec: mutations(patching(op("test", "/metadata/labels/team", `"shop"`), op("replace", "/metadata/labels/team", `"x"`))), want: `"team":"x"`},
	{name: "test that does not hold", spec: mutations(patching(op("add", "/metadata/labels/a", `"b"`), op("test", "/metadata/labels/team", `"other"`))), want: "unchanged"},
	{name: "test of what is not there", spec: mutations(patching(op("test", "/metadata/labels/nope", `"x"`), op("add", "/metadata/labels/a", `"b"`))), want: "unchanged"},
	{name: "test of null", spec: mutations(patching(op("test", "/spec/hostname", "null"), op("add", "/metadata/labels/a", `"b"`))), want: "unchanged"},
	{name: "test that does not hold, then another mutation", spec: mutations(patching(op("test", "/metadata/labels/team", `"other"`)), label("after", `"1"`)), want: `"after":"1"`},
	{name: "unknown operation", spec: mutations(patching(op("increment", "/metadata/labels/a", `"b"`))), want: "JSON Patch: "},
	{name: "no operation", spec: mutations(patching(`JSONPatch{path: "/metadata/labels/a", value: "b"}`)), want: "403 Invalid: WebhookPolicy 'p' with binding 'b' denied request: JSON Patch: Unexpected kind: "},
	{name: "no path", spec: mutations(patching(`JSONPatch{op: "add", value: "b"}`)), want: "JSON Patch: add operation does not apply: doc is missing path"},
	{name: "path without a slash", spec: mutations(patching(op("add", "metadata", `"b"`))), want: "JSON Patch: "},
	{name: "no operations", spec: mutations("{patchType: JSONPatch, jsonPatch: {expression: '[" + op("remove", "/spec", "") + "].filter(o, false)'}}"), want: "unchanged"},
	{name: "operations by a condition", spec: mutations("{patchType: JSONPatch, jsonPatch: {expression: 'has(object.metadata.labels) ? [" + op("add", "/metadata/labels/a", `"b"`) + "] : [" + op("add", "/metadata/labels", `{"a": "b"}`) + "]'}}"), want: `"a":"b"`},
	{name: "number for a string", spec: mutations(patching(op("add", "/metadata/labels/a", `1`))), want: "500 InternalError: Internal error occurred: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"},
	{name: "run time error in a value", spec: mutations(patching(op("add", "/metadata/labels/a", `string(object.nope)`))), want: "no such key: nope"},
	{name: "value of another type", spec: mutations(patching(op("add", "/metadata/annotations/a", `string(request.userInfo.groups.size())`))), want: `"a":"2"`},
	{name: "duration and bytes as values", spec: mutations(patching(op("add", "/metadata/annotations/a", `duration("90s")`), op("add", "/metadata/annotations/b", `b"xy"`), op("add", "/metadata/annotations/c", `timestamp("2026-01-02T03:04:05Z")`))), want: `"a":"90s"`},

	{name: "two in a row", spec: mutations(label("a", `"1"`), label("b", `object.metadata.labels.a + "2"`)), want: `"b":"12"`},
	{name: "apply after patch", spec: mutations(patching(op("add", "/metadata/labels/a", `"1"`)), label("a", `object.metadata.labels.a + "2"`)), want: `"a":"12"`},
	{name: "patch after apply", spec: mutations(label("a", `"1"`), patching(op("test", "/metadata/labels/a", `"1"`), op("replace", "/metadata/labels/a", `object.metadata.labels.a + "2"`))), want: `"a":"12"`},
	{name: "there and back", spec: mutations(label("a", `"1"`), patching(op("remove", "/metadata/labels/a", ""))), want: "unchanged"},
	{name: "the second of three fails", spec: mutations(label("a", `"1"`), label("b", "string(object.nope)"), label("c", `object.metadata.labels.a + "3"`)), want: "no such key: nope"},
	{name: "two fail", spec: mutations(label("b", "string(object.nope)"), label("a", `"1"`), label("b", "string(object.nada)")), want: "no such key: nope"},
	{name: "the first fails", spec: mutations(patching(op("remove", "/metadata/labels/nope", "")), label("c", `"3"`)), want: "JSON Patch: "},
	{name: "oldObject stays", on: "update pod", spec: mutations(label("team", `"new"`), label("was", "string(oldObject.metadata.labels.team)")), want: `"was":`},
	{name: "request", spec: mutations(label("by", "request.userInfo.username + request.operation + request.kind.kind")), want: `"by":"aliceCREATEPod"`},
	{name: "namespaceObject", spec: mutations(label("tier", "namespaceObject.metadata.labels.tier")), want: `"tier":"prod"`},
	{name: "authorizer", spec: mutations(label("may", `string(`+check("allow")+`.allowed())`)), want: `"may":"true"`},
	{name: "authorizer fails", spec: mutations(label("may", `string(`+check("fail")+`.allowed()) + `+check("fail")+`.error().substring(0, 3)`)), want: `"may":"falsethe"`},

	{name: "variable", spec: "variables: [{name: v, expression: 'object.metadata.labels.team + \"!\"'}]\n" + mutations(label("a", "variables.v"), label("b", "variables.v")), want: `"b":"shop!"`},
	{name: "variable of variables", spec: "variables: [{name: v, expression: '\"x\"'}, {name: w, expression: 'variables.v + variables.v'}]\n" + mutations(label("a", "variables.w")), want: `"a":"xx"`},
	{name: "variable is evaluated anew for each mutation", spec: "variables: [{name: v, expression: 'string(object.metadata.labels.size())'}]\n" + mutations(label("a", "variables.v"), label("b", "variables.v")), want: `"b":"3"`},
	{name: "variable that fails", spec: "variables: [{name: v, expression: 'string(object.nope)'}]\n" + mutations(label("a", "variables.v")), want: `composited variable "v" fails to evaluate: no such key: nope`},
	{name: "variable in a patch", spec: "variables: [{name: v, expression: 'object.spec.containers.map(c, string(c.name))'}]\n" + mutations(patching(op("add", "/metadata/annotations/names", `variables.v.join("+")`))), want: `"names":"app+side"`},
	{name: "variable of patch types is not declared there", spec: "variables: [{name: v, expression: '{\"a\": \"b\"}'}]\n" + mutations(applying(`Object{metadata: Object.metadata{labels: variables.v}}`)), want: `"a":"b"`},

	{name: "condition false", spec: "matchConditions: [{name: c, expression: 'request.name == \"x\"'}]\n" + mutations(label("a", `"b"`)), want: "unchanged"},
	{name: "condition fails", spec: "matchConditions: [{name: c, expression: 'object.nope == 1'}]\n" + mutations(label("a", `"b"`)), want: "expression 'object.nope == 1' resulted in error"},
	{name: "condition with a variable", spec: "variables: [{name: v, expression: 'request.name'}]\nmatchConditions: [{name: c, expression: 'variables.v == \"web\"'}]\n" + mutations(label("a", `variables.v`)), want: `"a":"web"`},
	{name: "condition asks the authorizer", spec: "matchConditions: [{name: c, expression: '" + check("deny") + ".allowed()'}]\n" + mutations(label("a", `"b"`)), want: "unchanged"},

	{name: "param", spec: ofConfigMaps + mutations(label("max", "params.data.max")) + bound("{name: b, paramRef: {name: second, parameterNotFoundAction: Deny}}"), want: `"max":"2"`},
	{name: "several params, in order", spec: ofConfigMaps + mutations(label("max", `object.metadata.?labels["max"].orValue("") + params.data.max`)) + bound("{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}"), want: `"max":"123"`},
	{name: "a param's condition sees what the one before did", spec: ofConfigMaps + "matchConditions: [{name: c, expression: '!has(object.metadata.labels.max)'}]\n" + mutations(label("max", "params.data.max")) + bound("{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}"), want: `"max":"1"`},
	{name: "custom param", spec: ofLimits + mutations(label("max", "string(params.spec.max) + params.kind")) + bound("{name: b, paramRef: {name: low, parameterNotFoundAction: Deny}}"), want: `"max":"2Limit"`},
	{name: "missing param, Deny", spec: ofConfigMaps + mutations(label("max", "params.data.max")) + bound("{name: b, paramRef: {name: none, parameterNotFoundAction: Deny}}"), want: "403 Forbidden: WebhookPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found"},
	{name: "missing param, Allow", spec: ofConfigMaps + mutations(label("max", "params.data.max")) + bound("{name: b, paramRef: {name: none, parameterNotFoundAction: Allow}}"), want: "unchanged"},
	{name: "one binding lacks its param", spec: ofConfigMaps + mutations(label("max", "params.data.max")) + bound("{name: one, paramRef: {name: first, parameterNotFoundAction: Deny}}", "{name: two, paramRef: {name: none, parameterNotFoundAction: Deny}}"), want: "with binding 'two' denied request: failed to configure binding"},
	{name: "an error before a binding that lacks its param", spec: ofConfigMaps + mutations(label("max", "params.data.nope")) + bound("{name: one, paramRef: {name: first, parameterNotFoundAction: Deny}}", "{name: two, paramRef: {name: none, parameterNotFoundAction: Deny}}"), want: "with binding 'two' denied request: failed to configure binding"},
	{name: "bindings are matched before anything is changed", spec: mutations(label("team", `"other"`)) + bound("{name: one, matchResources: {objectSelector: {matchLabels: {team: shop}}}}", "{name: two, matchResources: {objectSelector: {matchLabels: {team: other}}}}"), want: `"team":"other"`},
	{name: "a binding matches what the one before made no longer", spec: mutations(label("team", `object.metadata.labels.team + "x"`)) + bound("{name: one, matchResources: {objectSelector: {matchLabels: {team: shop}}}}", "{name: two, matchResources: {objectSelector: {matchExpressions: [{key: team, operator: In, values: [shop]}]}}}"), want: `"team":"shopxx"`},
	{name: "malformed selector", spec: mutations(label("a", `"b"`)) + bound("{name: b, matchResources: {namespaceSelector: {matchLabels: {'a b': c}}}}"), want: "403 Forbidden: WebhookPolicy 'p' with binding 'b' denied request: failed to configure binding: "},

	{name: "deletion", on: "delete pod", spec: mutations(label("a", "string(object.nope)")), want: "unchanged"},
	{name: "scale", on: "update scale", spec: mutations(applying(`Object{spec: Object.spec{replicas: 5}}`)), want: `"replicas":5`},
	{name: "scale by a patch", on: "update scale", spec: mutations(patching(op("replace", "/spec/replicas", "object.spec.replicas * 2"))), want: `"replicas":6`},
	{name: "scale has no containers", on: "update scale", spec: mutations(applying(`Object{spec: Object.spec{containers: []}}`)), want: "field not declared in schema"},
	{name: "options of an exec", on: "connect exec", spec: mutations(patching(op("replace", "/stdin", "false"))), want: `"command":["sh"]`},
	{name: "eviction", on: "create eviction", spec: mutations(applying(`Object{deleteOptions: Object.deleteOptions{gracePeriodSeconds: 7}}`)), want: `"gracePeriodSeconds":7`},
	{name: "deployment", on: "create deployment", spec: mutations(applying(`Object{spec: Object.spec{replicas: object.spec.replicas + 1, template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "app", image: "y"}]}}}}`)), want: `"image":"y"`},
	{name: "custom resource", on: "custom resource", spec: mutations(applying(`Object{spec: Object.spec{count: object.spec.count + 1, tags: ["x"], parts: [Object.spec.parts{name: "a", size: 1, color: "red"}]}}`)), want: `"count":4`},
	{name: "custom resource, list by two keys", on: "custom resource", spec: mutations(applying(`Object{spec: Object.spec{parts: [Object.spec.parts{name: "a", size: 1}, Object.spec.parts{name: "a", size: 2}]}}`), applying(`Object{spec: Object.spec{parts: [Object.spec.parts{name: "a", size: 2, color: "red"}]}}`)), want: `{"color":"red","name":"a","size":2}`},
	{name: "custom resource, atomic", on: "custom resource", spec: mutations(applying(`Object{spec: Object.spec{closed: Object.spec.closed{a: "x"}}}`)), want: "may not mutate atomic arrays, maps or structs: .spec.closed"},
	{name: "custom resource, atomic list", on: "custom resource", spec: mutations(applying(`Object{spec: Object.spec{mixed: [1]}}`)), want: "may not mutate atomic"},
	{name: "custom resource, unknown field", on: "custom resource", spec: mutations(applying(`Object{spec: Object.spec{nope: 1}}`)), want: "field not declared in schema"},
	{name: "custom resource, unknown field by a patch", on: "custom resource", spec: mutations(patching(op("add", "/spec/nope", "1"))), want: `"nope":1`},
	{name: "custom resource, values", on: "custom resource", spec: mutations(patching(op("add", "/spec/open", `{"a": dyn(1), "b": dyn(2.5), "c": dyn([dyn(1), dyn("x")]), "d": dyn(null)}`), op("replace", "/spec/big", "object.spec.big + 1"))), want: `"open"`},
	{name: "custom resource, large integer beside a change", on: "custom resource", spec: mutations(patching(op("replace", "/spec/count", "4"))), want: `"big":9007199254740993`},
	{name: "custom resource, fraction", on: "custom resource", spec: mutations(applying(`Object{spec: Object.spec{ratio: 2.0}}`)), want: `"ratio":2`},
}

// TestSameMutationAsKubernetes puts each policy, under every failurePolicy,
// before every kind of request and compares what becomes of the object.
func TestSameMutationAsKubernetes(t *testing.T) {
	inputs := mutableInputs(t)
	for _, tc := range mutationCases {
		t.Run(tc.name, func(t *testing.T) {
			p := withActions(policyFrom(t, "p", tc.spec), actionSets["deny"])
			for _, failurePolicy := range failurePolicies {
				policies := []*v1alpha1.WebhookPolicy{variant(p, p.Spec.Bindings, failurePolicy)}
				oracle, group := newMutationOracle(policies, testWorld), groupOf(t, policies)
				for name, in := range inputs {
					t.Run(fmt.Sprintf("%s/%s", failurePolicy, name), func(t *testing.T) {
						got := compareMutation(t, oracle, group, in)
						if failurePolicy == admissionregistrationv1.Fail && name == tc.request() {
							checkMutation(t, got, in, tc.want)
						}
					})
				}
			}
		})
	}
}

func checkMutation(t *testing.T, got changed, in input, want string) {
	t.Helper()
	text := got.String()
	if want == "unchanged" {
		want = changed{Allowed: true, Object: content(t, in.object)}.String()
	}
	if !strings.Contains(text, want) || want == "" {
		t.Errorf("native answer = %.1500s, want %s", text, want)
	}
}
