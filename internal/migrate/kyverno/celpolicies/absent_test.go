package celpolicies

import (
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// A policy that compares the object of a request with null has a note, because it decides otherwise in Kyverno.
func TestNoteAbsentObjects(t *testing.T) {
	for name, c := range map[string]struct {
		expression string
		want       bool
	}{
		"the old object is null":      {"oldObject == null || object.metadata.name == oldObject.metadata.name", true},
		"null is not the object":      {"null != object && object.metadata.name != 'a'", true},
		"the old object has a field":  {"!has(oldObject.spec) || oldObject.spec == object.spec", true},
		"a field of the object":       {"has(object.metadata.labels)", false},
		"a field of it that is null":  {"object.metadata.name != null", false},
		"a variable with such a name": {"myobject == null", false},
	} {
		const head = `apiVersion: policies.kyverno.io/v1
metadata: {name: policy}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}
`
		for kind, spec := range map[string]string{
			"ValidatingPolicy": `  validations:
  - expression: "EXPRESSION"
`,
			"MutatingPolicy": `  matchConditions:
  - {name: condition, expression: "EXPRESSION"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{}"}
`,
		} {
			objects := read(t, head+strings.ReplaceAll(spec, "EXPRESSION", c.expression)+"kind: "+kind+"\n")
			converted, err := Source().Convert(&conversion.Input{Objects: objects, All: objects})
			if err != nil {
				t.Fatal(err)
			}
			got := false
			for _, r := range converted[0].Rows {
				got = got || strings.Contains(r.Detail, "Kyverno has an empty object")
			}
			if got != c.want {
				t.Errorf("%s, %s: got a note %v, want %v: %v", name, kind, got, c.want, converted[0].Rows)
			}
		}
	}
}
