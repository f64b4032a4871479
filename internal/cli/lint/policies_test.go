package lint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/documents"
)

// shortPolicy is a policy in short form: see testdata/faulty.yaml.
type shortPolicy struct {
	Name       string            `json:"name"`
	Source     string            `json:"source"` // a public report of such a fault
	Group      string            `json:"group"`
	On         []string          `json:"resources"`
	Operations []string          `json:"ops"`
	Variables  map[string]string `json:"variables"`
	Conditions []string          `json:"conditions"`
	Expression string            `json:"expr"`
	Patch      string            `json:"patch"`
	Apply      string            `json:"apply"`
	Spec       map[string]any    `json:"spec"` // is added
	CRD        bool              `json:"crd"`  // the policy is for widgets
	Want       string            `json:"want"` // a part of a finding
}

// document returns the policy.
func (s *shortPolicy) document(t *testing.T) string {
	t.Helper()
	group, version, operations := s.Group, "v1", s.Operations
	if s.CRD {
		group = "example.com"
	}
	if len(operations) == 0 {
		operations = []string{"CREATE", "UPDATE"}
	}
	if s.Patch+s.Apply != "" && len(s.Operations) == 0 {
		operations = []string{"CREATE"}
	}
	rule := map[string]any{"apiGroups": []string{group}, "apiVersions": []string{version}, "resources": s.On,
		"operations": operations}
	match := map[string]any{"resourceRules": []any{rule}}
	spec := map[string]any{"matchConstraints": match}
	// A variable that another one reads has a later name.
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(s.Variables))) {
		before, _ := spec["variables"].([]any)
		spec["variables"] = append(before, map[string]any{"name": name, "expression": s.Variables[name]})
	}
	for i, c := range s.Conditions {
		before, _ := spec["matchConditions"].([]any)
		spec["matchConditions"] = append(before, map[string]any{"name": fmt.Sprint("c", i), "expression": c})
	}
	switch {
	case s.Patch != "":
		spec["mutations"] = []any{map[string]any{"patchType": "JSONPatch",
			"jsonPatch": map[string]any{"expression": s.Patch}}}
	case s.Apply != "":
		spec["mutations"] = []any{map[string]any{"patchType": "ApplyConfiguration",
			"applyConfiguration": map[string]any{"expression": s.Apply}}}
	case s.Expression != "":
		spec["validations"] = []any{map[string]any{"expression": s.Expression}}
	}
	for name, value := range s.Spec {
		if more, ok := value.(map[string]any); ok && name == "matchConstraints" {
			maps.Copy(match, more)
			continue
		}
		spec[name] = value
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "admission.ostiary.dev/v1alpha1",
		"kind": "WebhookPolicy", "metadata": map[string]any{"name": "p"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// widgetsWithParts is a custom resource with an optional field, and with an optional struct that
// has one.
const widgetsWithParts = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}, status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer}
              replicas: {type: integer, default: 1}
              color: {type: string}
              parts: {type: object, properties: {count: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
`

// findingsOf returns the findings about policies, by their keys. One call checks all of them, since
// most of the time is that for compilers.
func findingsOf(t *testing.T, policies map[string]string) map[string][]string {
	t.Helper()
	text := widgetsWithParts
	keys := slices.Sorted(maps.Keys(policies))
	for i, key := range keys {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(policies[key]), &object); err != nil {
			t.Fatal(err)
		}
		metadata, _ := object["metadata"].(map[string]any)
		metadata["name"] = fmt.Sprint("p", i)
		renamed, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text += "---\n" + string(renamed)
	}
	objects, err := load.Objects(t.Context(), []string{"-"}, load.Options{Stdin: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	findings, n, err := Check(t.Context(), objects, nil, policy.LatestEngine, time.Now())
	if err != nil || n != len(policies) {
		t.Fatalf("%d policies: %v", n, err)
	}
	out := map[string][]string{}
	for _, f := range findings {
		i := 0
		if _, err := fmt.Sscanf(f.Policy, "p%d", &i); err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		out[keys[i]] = append(out[keys[i]], f.Rule+": "+messageOf(f))
	}
	return out
}

func readShort(t *testing.T, file string) (table []shortPolicy) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// TestFaultyPolicies checks that each policy with a fault has a finding that names it.
func TestFaultyPolicies(t *testing.T) {
	table := readShort(t, "testdata/faulty.yaml")
	reported := 0
	policies := map[string]string{}
	for i := range table {
		if policies[table[i].Name] = table[i].document(t); table[i].Source != "" {
			reported++
		}
	}
	all := findingsOf(t, policies)
	for i := range table {
		p := &table[i]
		t.Run(p.Name, func(t *testing.T) {
			got := all[p.Name]
			if !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, p.Want) }) {
				t.Errorf("got %q, want %q", got, p.Want)
			}
		})
	}
	if len(policies) < 120 || 2*reported < len(table) {
		t.Errorf("%d policies, of which %d are from public reports", len(policies), reported)
	}
}

// TestRightPolicies checks that the rehearsal finds nothing in the policies of the library, the
// documents and the samples, and in those that correct the faulty ones.
func TestRightPolicies(t *testing.T) {
	const root = "../../../"
	policies := map[string]string{}
	for _, p := range readShort(t, "testdata/right.yaml") {
		policies[p.Name] = p.document(t)
	}
	files, err := filepath.Glob(root + "library/*/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		policies[file] = string(text)
	}
	all, err := documents.All(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range all {
		examples, err := documents.Examples(root, document)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range examples {
			policies[fmt.Sprintf("%s %s %d", document, e.Policy, e.Nth)] = e.Manifest
		}
	}
	if len(policies) < 200 {
		t.Errorf("%d policies, want at least 200", len(policies))
	}
	// What these policies leave open is not the subject of their pages, or their purpose.
	intended := map[string]string{
		"config/samples/02-warn-latest-image.yaml warn-latest-image 0": "pods/ephemeralcontainers",
		"docs/policies/lookups.md disruption-budgets 0":                "deployments/scale",
		"docs/policies/break-glass.md freeze 0":                        "the deletion of their namespace hangs",
		"docs/policies/pod-templates.md pinned-images 0":               "pods/ephemeralcontainers",
		"docs/migration/gatekeeper.md max-replicas 0":                  "deployments/scale",
	}
	found := findingsOf(t, policies)
	for name := range policies {
		t.Run(name, func(t *testing.T) {
			for _, f := range found[name] {
				if strings.HasPrefix(f, ruleRehearsal+": ") && (intended[name] == "" || !strings.Contains(f, intended[name])) {
					t.Error(f)
				}
			}
		})
	}
}
