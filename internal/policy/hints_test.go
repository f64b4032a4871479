package policy

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestHints(t *testing.T) {
	tests := map[string]struct {
		spec, want string
	}{
		"a syntax error":              {spec: "validations: [{expression: 'object.'}]", want: "compilation failed: "},
		"nothing similar":             {spec: "validations: [{expression: 'nope == 1'}]", want: "compilation failed: "},
		"has of a key":                {spec: "validations: [{expression: 'has(object.metadata.labels[\"team\"])'}]", want: `has() is for fields: write "team" in object.metadata.labels: compilation failed: `},
		"all elements":                {spec: "validations: [{expression: 'object.spec.containers[*].image == \"a\"'}]", want: "a list has no [*]: write object.spec.containers.all(x, ...) or object.spec.containers.exists(x, ...): compilation failed: "},
		"an assignment":               {spec: "validations: [{expression: 'size(object.spec.containers) = 1'}]", want: "a comparison is written ==: compilation failed: "},
		"a key as fields":             {spec: "validations: [{expression: 'object.metadata.labels.example.com/team == \"x\"'}]", want: `a key with a dot or a slash needs brackets: write object.metadata.labels["example.com/team"]: compilation failed: `},
		"an order of quantities":      {spec: "validations: [{expression: 'object.spec.a <= quantity(\"1Gi\")'}]", want: "quantities have no order of operators: write quantity(a).isLessThan(quantity(b)), isGreaterThan or compareTo: compilation failed: "},
		"params":                      {spec: "validations: [{expression: 'params.data.a == 1'}]", want: "params needs spec.paramKind, and a binding with paramRef: add both: compilation failed: "},
		"a misspelt variable":         {spec: "variables: [{name: team, expression: '1'}]\nvalidations: [{expression: variables.taem == 1}]", want: "there is no variable taem, did you mean team?: compilation failed: "},
		"a later variable":            {spec: "variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]", want: "variables can use only variables defined before them, and b is spec.variables[1]: define it before this one: compilation failed: "},
		"a misspelt function":         {spec: "validations: [{expression: 'object.metadata.name.startWith(\"a\")'}]", want: "there is no function startWith, did you mean startsWith?: compilation failed: "},
		"a misspelt field of request": {spec: "validations: [{expression: 'request.userInfo.usrname == \"a\"'}]", want: "there is no field usrname, did you mean username?: compilation failed: "},
		"a misspelt field of the namespace": {
			spec: "validations: [{expression: 'namespaceObject.metadata.lables.a == \"a\"'}]", want: "there is no field lables, did you mean labels?: compilation failed: ",
		},
		"an unknown field of a patch": {
			spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{opp: \"add\"}]'}}]", want: "JSONPatch has no field opp: its fields are op, path, from, value: compilation failed: ",
		},
		"a function of patches": {
			spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: jsonpatch.escapeKey(nope)}]'}}]", want: "compilation failed: ",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{}
			if err := yaml.UnmarshalStrict([]byte(tt.spec), &p.Spec); err != nil {
				t.Fatal(err)
			}
			compiled, errs := NewCompiler().Compile(p)
			if len(errs) == 0 || !strings.HasPrefix(errs[0].Detail, tt.want) {
				t.Fatalf("errors %v, want %q", errs, tt.want)
			}
			if err := compiled.mutator.err; err == nil || strings.Contains(err.Error(), "did you mean") {
				t.Errorf("answers to requests have the error %v, want that of the compiler", err)
			}
		})
	}
}
