package conversion

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestEncodeFoldsLongExpressions(t *testing.T) {
	long := `object.spec.containers.all(container, container.image.startsWith("registry.example.com/a b/")) && ` +
		`object.spec.?initContainers.orValue([]).all(container, container.image.startsWith("registry.example.com/"))`
	const want = `validations:
- name: a
  expression: >-
    object.spec.containers.all(container, container.image.startsWith("registry.example.com/a b/")) &&
    object.spec.?initContainers.orValue([]).all(container, container.image.startsWith("registry.example.com/"))
- name: b
  expression: |-
    a &&
      b
`
	type validation struct {
		Name       string `json:"name"`
		Expression string `json:"expression"`
	}
	got, err := Encode(map[string]any{"validations": []validation{{"a", long}, {"b", "a &&  \n  b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("YAML (-want +got):\n%s", diff)
	}
}

// A folded text keeps its value, whatever it consists of.
func TestFoldedTextsKeepTheirValues(t *testing.T) {
	parts := []string{
		"a", "&&", "||", `"x y"`, `'it is'`, `"`, `\"`, " ", "  ", "#", "# b", ": ", "- ", ">-", "|", "é",
		strings.Repeat("w", 70), "{", "\t",
	}
	random := rand.New(rand.NewPCG(1, 2))
	folded := 0
	for range 1_000 {
		var text strings.Builder
		for range random.IntN(60) {
			text.WriteString(parts[random.IntN(len(parts))])
			if random.IntN(3) > 0 {
				text.WriteString(" ")
			}
		}
		value := map[string]any{"list": []any{map[string]any{"expression": text.String(), "message": text.String()}}}
		encoded, err := Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(encoded), "expression: >-") {
			folded++
		}
		var got map[string]any
		if err := yaml.Unmarshal(encoded, &got); err != nil {
			t.Fatalf("%v in\n%s", err, encoded)
		}
		if diff := cmp.Diff(value, got); diff != "" {
			t.Fatalf("(-want +got):\n%s\nin\n%s", diff, encoded)
		}
	}
	if folded < 10 {
		t.Errorf("%d texts are folded, want more", folded)
	}
}
