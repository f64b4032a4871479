package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func parseSchema(t *testing.T, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(text), schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

const smallSchema = `
type: object
properties:
  kind: {type: string}
  spec:
    type: object
    description: spec is all.
    properties:
      names: {type: array, description: Some names., items: {type: string}}
      labels: {type: object, description: Some labels., additionalProperties: {type: string}}
      time: {type: string, format: date-time, description: A time.}
      mode: {type: string, enum: [A], description: A mode.}
      size: {type: integer, description: A size.}
`

func TestAmend(t *testing.T) {
	for name, tc := range map[string]struct {
		entry amendment
		want  string
	}{
		"list":               {entry: amendment{at: "spec.names", maxItems: 3, minItems: 1}},
		"items":              {entry: amendment{at: "spec.names[]", maxLength: 3, pattern: "a", enum: []string{"a"}}},
		"map and its values": {entry: amendment{at: "spec.labels{}", maxLength: 3}},
		"alternatives":       {entry: amendment{at: "spec.(names|labels)", description: "Many."}},
		"required":           {entry: amendment{at: "spec", required: []string{"size"}}},
		"unknown field": {
			entry: amendment{at: "spec.nmaes", maxItems: 3},
			want:  `table entry spec.nmaes: the schema has no "nmaes" there: remove the entry or mend its path`,
		},
		"one alternative is not": {
			entry: amendment{at: "spec.(names|tags)", maxItems: 3},
			want:  `table entry spec.tags: the schema has no "tags" there: remove the entry or mend its path`,
		},
		"items of a string": {
			entry: amendment{at: "spec.mode[]", maxLength: 3},
			want:  `table entry spec.mode[]: the schema has no "[]" there: remove the entry or mend its path`,
		},
		"maxLength of a list": {
			entry: amendment{at: "spec.names", maxLength: 3},
			want:  "table entry spec.names: maxLength, pattern and enum are for strings, the node is of type array",
		},
		"maxItems of a string": {
			entry: amendment{at: "spec.mode", maxItems: 3},
			want:  "table entry spec.mode: minItems and maxItems are for lists, the node is of type string",
		},
		"maxProperties of no map": {entry: amendment{at: "spec", maxProperties: 3},
			want: "table entry spec: maxProperties is for maps"},
		"required of no field": {
			entry: amendment{at: "spec", required: []string{"sizes"}},
			want:  `table entry spec: required names "sizes", which is not a field of the node`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := errors.Join(amend(parseSchema(t, smallSchema), []amendment{tc.entry})...); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAmendSets(t *testing.T) {
	schema := parseSchema(t, smallSchema)
	errs := amend(schema, []amendment{
		{at: "spec", required: []string{"size", "names", "size"}},
		{at: "spec.names", minItems: 1, maxItems: 3, description: "two\nlines"},
		{at: "spec.names[]", maxLength: 5, pattern: "^a", enum: []string{"a", `"`}},
		{at: "spec.labels", maxProperties: 7},
		{at: "spec.labels{}", maxLength: 9, rules: aloneIfWildcard("x")},
	})
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	want := parseSchema(t, `
type: object
properties:
  kind: {type: string}
  spec:
    type: object
    description: spec is all.
    required: [names, size]
    properties:
      names:
        {type: array, description: two lines, minItems: 1, maxItems: 3, items: {type: string, maxLength: 5, pattern: ^a, enum: [a, '"']}}
      labels:
        type: object
        description: Some labels.
        maxProperties: 7
        additionalProperties:
          type: string
          maxLength: 9
          x-kubernetes-validations:
          - rule: "!('*' in self) || size(self) == 1"
            message: "keep '*' alone in x, or remove it: it already stands for all"
            reason: FieldValueInvalid
      time: {type: string, format: date-time, description: A time.}
      mode: {type: string, enum: [A], description: A mode.}
      size: {type: integer, description: A size.}
`)
	if diff := cmp.Diff(want, schema); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestIncomplete(t *testing.T) {
	schema := parseSchema(t, strings.Replace(smallSchema, ", description: A size.", "", 1))
	var got []string
	for _, err := range incomplete(schema) {
		got = append(got, err.Error())
	}
	const add = ": add one by a marker on the field or in the table of hack/crdlimits"
	want := []string{
		"spec.labels has no maxProperties" + add,
		"spec.labels{} has no maxLength" + add,
		"spec.names has no maxItems" + add,
		"spec.names[] has no maxLength" + add,
		"spec.size has no description: say what the field is for",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// The definitions that are checked in are complete and as this program writes them.
func TestCheckedInDefinitions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) != len(tables()) {
		t.Fatalf("found %v, %v; want a definition of each of %d kinds", files, err, len(tables()))
	}
	unamended := map[string][]amendment{}
	for kind := range tables() {
		unamended[kind] = nil
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out, err := amendCRD(raw, unamended)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(raw), string(out)); diff != "" {
				t.Errorf("the file is not as this program writes it (-file +written):\n%s", diff)
			}
		})
	}
}

func TestAmendCRDRefusesWhatIsTooLarge(t *testing.T) {
	crd := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: g
  scope: Cluster
  names: {kind: K, plural: ks}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: ` + strings.Repeat("x", maxCRDBytes)
	_, err := amendCRD([]byte(crd), map[string][]amendment{"K": nil})
	if err == nil || !strings.Contains(err.Error(), "at most 200000 are allowed: shorten descriptions") {
		t.Errorf("got %v, want it refused for its size", err)
	}
	_, err = amendCRD([]byte(crd), tables())
	if err == nil || err.Error() != `there is no table for the kind "K": add one in tables` {
		t.Errorf("got %v, want a kind without a table refused", err)
	}
}
