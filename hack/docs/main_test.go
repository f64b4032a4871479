package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: zoo.example.com
  scope: Namespaced
  names: {kind: Animal, plural: animals, shortNames: [ani]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: |-
          Animal is
          a <beast>.
        properties:
          kind: {type: string}
          spec:
            type: object
            description: spec is it.
            required: [name]
            x-kubernetes-validations:
            - {rule: "true", message: no name, fieldPath: .name}
            - {rule: "true", message: "not '*'"}
            properties:
              age: {type: integer, minimum: 0, maximum: 9, description: Years.}
              born: {type: string, format: date-time, description: When.}
              name:
                {type: string, minLength: 1, maxLength: 3, pattern: "a|b", description: A or b.,
                  x-kubernetes-validations: [{rule: "true", message: say|it}]}
              legs: {type: integer, minimum: 2, description: How many.}
              kinds: {type: array, maxItems: 2, description: Kinds., items: {type: string, enum: [A, "*"]}, x-kubernetes-list-type: set}
              tags: {type: object, maxProperties: 2, description: Tags., additionalProperties: {type: string, maxLength: 4}}
              food: &food
                type: array
                description: Food.
                minItems: 1
                x-kubernetes-list-map-keys: [name]
                items: {type: object, description: One meal., properties: {name: {type: string, description: Its name.}}}
              treats: *food
`

const document = "# Animal\n" + `
<!-- Written by 'make manifests' from the CustomResourceDefinition: do not edit. -->

'apiVersion: zoo.example.com/v1', 'kind: Animal'; namespaced; short name 'ani'.

Animal is a &lt;beast>.

Fields in **bold** are required. Unset fields are not written into the object: defaults are computed.

## spec

spec is it.

Rejected, with the message:

- 'name': no name
- not "\*"

| field | type | |
|---|---|---|
| 'age' | integer; 0 to 9 | Years. |
| 'born' | time | When. |
| 'food' | list of objects; at least 1 entry; each 'name' once | Food. |
| 'kinds' | list of strings; at most 2 entries; each once; each one of 'A', '*' | Kinds. |
| 'legs' | integer; at least 2 | How many. |
| **'name'** | string; 1 to 3 characters; matches 'a\|b' | A or b. Rejected with \u201csay\|it\u201d. |
| 'tags' | map of strings; at most 2 entries; each at most 4 characters | Tags. |
| 'treats' | list of objects; at least 1 entry; each 'name' once | Food. |

## spec.food[]

One meal.

| field | type | |
|---|---|---|
| 'name' | string | Its name. |

## spec.treats[]

One meal.

As [spec.food[]](#specfood).
`

func TestReference(t *testing.T) {
	got, err := reference([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("'", "`", `"`, "'", `\u201c`, "\u201c", `\u201d`, "\u201d").Replace(document)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func TestReferenceRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ definition, want string }{
		"no version":    {"spec: {}", "it has 0 versions: write the document for one"},
		"no schema":     {"spec: {versions: [{name: v1}]}", "version v1 has no schema"},
		"unknown field": {"specs: {}", `error unmarshaling JSON: while decoding JSON: json: unknown field "specs"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := reference([]byte(tc.definition))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The document that is checked in is as this program writes it, and its links
// lead to its headings.
func TestCheckedInDocument(t *testing.T) {
	in, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "admission.ostiary.dev_webhookpolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "webhookpolicy.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the document is stale: run make manifests (-written +file):\n%s", diff)
	}
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile("(?m)^## (.*)$").FindAllStringSubmatch(want, -1) {
		if anchors["#"+anchor(heading[1])] {
			t.Errorf("two headings have the anchor of %s", heading[1])
		}
		anchors["#"+anchor(heading[1])] = true
	}
	for _, link := range regexp.MustCompile(`\]\((#[^)]*)\)`).FindAllStringSubmatch(want, -1) {
		if !anchors[link[1]] {
			t.Errorf("the link %s leads nowhere", link[1])
		}
	}
}
