package typecheck

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

func TestVersions(t *testing.T) {
	const tolerated = "() of a value that is not optional is this value up to Kubernetes 1.36, and an error from 1.37 on: use "
	tests := map[string]struct {
		variable, validation, mutation string
		engine                         policy.Engine // 36 by default
		want                           []string      // without the field
		wantField                      string
	}{
		"a field": {
			validation: `object.spec.name.orValue("x") == "y"`,
			want:       []string{"orValue" + tolerated + "object.spec.?name.orValue(...)"},
		},
		"a field, in the latest engine": {
			validation: `object.spec.name.orValue("x") == "y"`,
			engine:     37,
			want:       []string{"orValue" + tolerated + "object.spec.?name.orValue(...)"},
		},
		"or": {
			validation: `object.spec.name.or(optional.of("x")).value() == "y"`,
			want:       []string{"or" + tolerated + "object.spec.?name.or(...)"},
		},
		"optional fields": {
			validation: `object.?spec.name.orValue("x") == object.spec[?"x"].orValue("y") && object.?a.or(object.?b).orValue(1) == 1`,
		},
		"the first of a list": {validation: `[1].first().orValue(1) == 1`},
		"optMap":              {validation: `object.?a.optMap(v, v + 1).orValue(1) == 1`},
		"an element": {
			validation: `object.list.all(e, e.orValue(1) == 1)`,
			want:       []string{"orValue" + tolerated + "an optional value, as in object.?name.orValue(...)"},
		},
		"the same twice": {
			validation: `object.a.orValue(1) == object.a.orValue(1)`,
			want:       []string{"orValue" + tolerated + "object.?a.orValue(...)"},
		},
		"an optional variable": {variable: `object.?spec`, validation: `variables.v.orValue(1) == 1`},
		"a variable": {
			variable:   `object.spec`,
			validation: `variables.v.orValue(1) == 1`,
			want:       []string{"orValue" + tolerated + "variables.?v.orValue(...)"},
		},
		"in a variable": {
			variable:   `object.a.orValue(1)`,
			validation: `true`,
			want:       []string{"orValue" + tolerated + "object.?a.orValue(...)"},
			wantField:  "spec.variables[0].expression",
		},
		"in a mutation": {
			mutation:  `Object{metadata: Object.metadata{labels: {"a": string(object.a.orValue("b")), "c": string(object.?a.orValue("b"))}}}`,
			want:      []string{"orValue" + tolerated + "object.?a.orValue(...)"},
			wantField: "spec.mutations[0].applyConfiguration.expression",
		},
		"includes": {
			validation: `[1].includes(1)`,
			want:       []string{"Kubernetes 1.36 and before have no function includes(), and 1.37 has: use the operator in"},
		},
		"includes, where it is known": {validation: `[1].includes(1)`, engine: 37},
		"backticks": {
			validation: "object.metadata.labels.`a/b` == '`'",
			want: []string{
				"Kubernetes 1.36 and before cannot read the name `a/b` in backticks, and 1.37 can: use [\"a/b\"]",
			},
		},
		"backticks in a text":             {validation: "object.a == '`'"},
		"backticks, where they are known": {validation: "object.`a/b` == 1", engine: 37},
	}
	checker, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{}
			field := "spec.validations[0].expression"
			if tt.wantField != "" {
				field = tt.wantField
			}
			if tt.variable != "" {
				p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: tt.variable}}
			}
			if tt.validation != "" {
				p.Spec.Validations = []v1alpha1.Validation{{Expression: tt.validation}}
			}
			if tt.mutation != "" {
				p.Spec.Mutations = []admissionregistrationv1.Mutation{
					{
						PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
						ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: tt.mutation},
					},
				}
			}
			if _, errs := policy.NewCompiler().Compile(p); len(errs) > 0 && !strings.Contains(errs.ToAggregate().Error(), "no matching overload") {
				t.Fatal(errs)
			}
			var got []string
			for _, w := range checker.Versions(p, max(tt.engine, 36)) {
				if w.Field != field {
					t.Errorf("got %s, want %s", w.Field, field)
				}
				got = append(got, w.Text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
