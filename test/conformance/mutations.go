package conformance

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// mutation changes what most kinds have, or what the target has.
func (a author) mutation(e expressions) admissionregistrationv1.Mutation {
	if a.chance(2) {
		return admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: a.jsonPatch(e)},
		}
	}
	return admissionregistrationv1.Mutation{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: a.applyConfiguration(e)},
	}
}

func (a author) jsonPatch(e expressions) string {
	operation := func() string {
		all := []string{
			fmt.Sprintf(`JSONPatch{op: "add", path: "/metadata/labels/m%d", value: %s}`, a.IntN(3), pick(a, `"v"`, `"w"`, e.text(0))),
			fmt.Sprintf(`JSONPatch{op: "add", path: "/metadata/annotations", value: {"conformance.test/n": %s}}`, e.text(1)),
			fmt.Sprintf(`JSONPatch{op: "test", path: "/metadata/name", value: %s}`, pick(a, `"made"`, "string(object.metadata.name)", e.text(0))),
			`JSONPatch{op: "remove", path: "/metadata/labels/team"}`,
			`JSONPatch{op: "remove", path: "/metadata/annotations"}`,
			`JSONPatch{op: "replace", path: "/metadata/labels/team", value: "patched"}`,
			`JSONPatch{op: "copy", from: "/metadata/name", path: "/metadata/labels/copied"}`,
			`JSONPatch{op: "move", from: "/metadata/labels/team", path: "/metadata/labels/moved"}`,
			`JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("conformance.test/k"), value: "v"}`,
			`JSONPatch{op: "add", path: "/absent/child", value: 1}`,
		}
		for _, p := range e.target.patches {
			all = append(all, p, p)
		}
		return pick(a, all...)
	}
	out := "[" + operation()
	for range a.IntN(3) {
		out += ", " + operation()
	}
	out += "]"
	if a.chance(4) {
		return e.truth(1) + " ? " + out + " : []"
	}
	return out
}

func (a author) applyConfiguration(e expressions) string {
	all := []string{
		`Object{}`,
		fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"a%d": %s}}}`, a.IntN(3), pick(a, `"v"`, `"w"`, e.text(0))),
		fmt.Sprintf(`Object{metadata: Object.metadata{annotations: {"conformance.test/a": %s}}}`, e.text(1)),
		fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"team": "applied"}, annotations: {"conformance.test/b": %s}}}`, e.text(0)),
	}
	for _, o := range e.target.applies {
		all = append(all, o, o)
	}
	out := pick(a, all...)
	if a.chance(4) {
		return e.truth(1) + " ? " + out + " : Object{}"
	}
	return out
}

// idempotent is a mutation that changes nothing the second time.
func idempotent(e expressions) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
			Expression: `Object{metadata: Object.metadata{annotations: {"conformance.test/idempotent": "` + e.target.resource + `"}}}`,
		},
	}
}
