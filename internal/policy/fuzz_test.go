package policy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsontree "k8s.io/apimachinery/pkg/util/json"

	"github.com/ostiary/ostiary/test/shapes"
)

// fuzzedMutations are mutations of every kind. What a JSON patch says is taken
// from annotations and the spec of the object, as a hostile author of both would
// have it.
func fuzzedMutations() map[string]string {
	const (
		path   = `path: string(object.?metadata.?annotations.?path.orValue("/spec/containers"))`
		from   = `from: string(object.?metadata.?annotations.?from.orValue("/metadata"))`
		value  = `value: object.?spec.?containers.orValue(dyn([]))`
		second = `value: oldObject == null ? dyn(["a", "b"]) : dyn(oldObject.?spec.?containers.orValue(dyn([])))`
	)
	patch := func(operation, rest string) string {
		return "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"" + operation + "\", " + rest + "}]'}}]\n"
	}
	return map[string]string{
		"add":             patch("add", path+", "+value),
		"remove":          patch("remove", path),
		"replace":         patch("replace", path+", "+value),
		"move":            patch("move", from+", "+path),
		"copy":            patch("copy", from+", "+path),
		"test":            patch("test", path+", "+value),
		"test of old":     patch("test", path+", "+second),
		"test of list":    patch("test", `path: "/spec/containers", value: [{"name": "app", "image": "x"}]`),
		"any":             "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: string(object.?metadata.?annotations.?op.orValue(\"add\")), " + from + ", " + path + ", " + value + "}]'}}]\n",
		"without a value": patch("add", path),
		"several":         mutations(patching(op("add", "/metadata/labels/a", `"b"`), op("test", "/metadata/labels/a", `"b"`), op("remove", "/spec/containers/0", "")), label("c", `"d"`)),
		"apply a label":   mutations(label("a", `string(object.metadata.name)`)),
		"apply a list":    mutations(applying(`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: "y"})}}`)),
		"apply an item":   mutations(applying(`Object{spec: Object.spec{containers: [Object.spec.containers{name: "mesh", image: "x", env: [Object.spec.containers.env{name: "a", value: "b"}]}]}}`)),
		"apply parts":     mutations(applying(`Object{spec: Object.spec{parts: [Object.spec.parts{name: "a", size: 1, color: string(object.spec.name)}], tags: ["a", "b"]}}`)),
		"apply what is":   mutations(applying(`Object{spec: Object.spec{open: object.spec.open, replicas: object.spec.replicas}}`)),
		"with conditions": "matchConditions: [{name: c, expression: 'object.metadata.?labels.orValue({}).all(k, k != \"x\")'}]\n" + mutations(label("a", `"b"`)) +
			bound("{name: b, matchResources: {objectSelector: {matchExpressions: [{key: a, operator: NotIn, values: [c]}]}}}"),
	}
}

// FuzzMutations puts objects of any shape to every kind of mutation and every
// operation of JSON patches, and applies each result once more. A panic of a
// library is an error of that policy, and no answer to another request changes.
func FuzzMutations(f *testing.F) {
	specs := fuzzedMutations()
	names := slices.Sorted(maps.Keys(specs))
	groups := map[string]*Group{}
	for _, name := range names {
		groups[name] = groupFrom(f, map[string]string{"p": specs[name]})
	}
	inputs := mutableInputs(f)
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if inputs[name].object != nil {
			kinds = append(kinds, name)
		}
	}
	host := testWorld.host()
	host.Recheck = &Recheck{Every: 1, Found: func(Repeat) {}, Later: func(check func(context.Context)) { check(context.Background()) }}
	known := podInput(f, "CREATE").review(f)
	want := map[string]string{}
	for _, name := range names {
		want[name] = answerText(f, groups[name], known, host)
	}
	for kind := range kinds {
		for mutation := range names {
			m, k := uint8(mutation), uint8(kind)
			f.Add(m, k, false, []byte{}, []byte{}, "", "", "")
			f.Add(m, k, true, []byte{}, []byte{}, "add", "/metadata/labels/a", "/metadata/name")
			f.Add(m, k, false, []byte{0, 9, 18, 0, 3, 29}, []byte{0, 9, 18}, "test", "/spec/containers/0", "/spec")
			f.Add(m, k, false, []byte{0, 20, 17, 0, 21, 18}, []byte{0, 20, 20}, "move", "/spec/containers/-", "")
		}
	}
	f.Fuzz(func(t *testing.T, mutation, kind uint8, bytes bool, edits, oldEdits []byte, op, path, from string) {
		name := names[int(mutation)%len(names)]
		raw := inputs[kinds[int(kind)%len(kinds)]].review(t)
		if bytes {
			raw.Object.Raw = edits
		} else {
			raw.Object.Raw = mangled(t, raw.Object, edits, map[string]any{"op": op, "path": path, "from": from})
			raw.OldObject.Raw = mangled(t, raw.OldObject, oldEdits, nil)
		}
		panics := 0
		host := host
		host.Panicked = func(p PanicReport) { panics++ }
		response, err := groups[name].Mutate(t.Context(), raw, host)
		var malformed *MalformedError
		switch {
		case errors.As(err, &malformed):
		case err != nil || response == nil:
			t.Errorf("%s: the answer is %+v, %v", name, response, err)
		case panics > 0 && response.Allowed:
			t.Errorf("%s: the policy panicked, and the request is allowed", name)
		}
		if panics == 0 {
			return
		}
		if got := answerText(t, groups[name], known, host); got != want[name] {
			t.Errorf("%s: after a panic another request is answered with %s, want %s", name, got, want[name])
		}
	})
}

// mangled is an object with annotations, and other edits.
func mangled(tb testing.TB, object runtime.RawExtension, edits []byte, annotations map[string]any) []byte {
	tb.Helper()
	var tree any
	if len(object.Raw) > 0 {
		if err := jsontree.Unmarshal(object.Raw, &tree); err != nil {
			tb.Fatal(err)
		}
	}
	if root, ok := tree.(map[string]any); ok && annotations != nil {
		if metadata, ok := root["metadata"].(map[string]any); ok {
			metadata["annotations"] = annotations
		}
	}
	out, err := json.Marshal(shapes.Mangle(tree, edits))
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func answerText(tb testing.TB, g *Group, raw *admissionv1.AdmissionRequest, host Environment) string {
	tb.Helper()
	out, err := json.Marshal(mutate(tb, g, raw, host))
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}
