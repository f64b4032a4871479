package conditions_test

import (
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
)

// maxSource is the maximum length of expressions that the fuzz test compiles.
const maxSource = 3_000

// FuzzCompare converts conditions: the result is an error, or CEL that compiles.
func FuzzCompare(f *testing.F) {
	for _, seed := range [][3]string{
		{"{{ request.object.metadata.labels.team || '' }}", "Equals", "a*"},
		{"{{ request.object.spec.containers[?name == 'a'].ports[].containerPort }}", "AnyNotIn", "1-1023"},
		{"{{ length(keys(request.object.metadata.labels)) }}", "GreaterThan", "1Gi"},
		{"{{ request.object.spec.[containers, initContainers][].image | [0] }}", "AllIn", `["a","b"]`},
		{"x{{ split(request.object.kind, '\\'')[1] }}y", "DurationLessThan", "1h"},
		{"no duration", "DurationLessThan", "1h"},
		{`no \\ duration`, "LessThan", "1h"},
		{"{{ @(request.object.kind) }}", "Equals", "a"},
		{"{{ request.object.*.* && !request }}", "NotEquals", "{{ request.object.metadata.\"a.b\" }}"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 34)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("object", cel.DynType)},
	})
	if err != nil {
		f.Fatal(err)
	}
	env := set.NewExpressionsEnv()
	pod := ce.ObjectPlace("object", ce.ShapeOfKinds(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}))
	f.Fuzz(func(t *testing.T, key, operator, value string) {
		for _, object := range []ce.Place{pod, ce.ObjectPlace("object", ce.Shape{})} {
			request := ce.VariablePlace("object", ce.Shape{})
			request.Members = map[string]ce.Place{"object": object}
			var notes []string
			scope := &conditions.Scope{Variables: map[string]conditions.Value{"request": conditions.Field(request)}, Notes: &notes}
			r, err := scope.Compare(key, operator, value)
			if err != nil || len(r.String()) > maxSource {
				continue
			}
			if _, issues := env.Compile(r.Bool().String()); issues.Err() != nil {
				t.Fatalf("%s: %s", r, issues.Errors()[0].Message)
			}
		}
	})
}
