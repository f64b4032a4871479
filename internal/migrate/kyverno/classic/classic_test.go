package classic_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/classic"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// testCase is a policy with requests and their verdicts.
type testCase struct {
	Name string `json:"name"`
	// Kinds that the rule matches, if it has no match. Default Pod.
	Kinds []string `json:"kinds"`
	// Rule is the rule without its name.
	Rule map[string]any `json:"rule"`
	// Spec has other fields of the policy.
	Spec map[string]any `json:"spec"`
	// Policy is a whole policy, or several objects, instead of a rule.
	Policy string `json:"policy"`
	// World are other objects.
	World string    `json:"world"`
	Allow []request `json:"allow"`
	Deny  []request `json:"deny"`
	// Mutate are requests with the expected object.
	Mutate []request `json:"mutate"`
	// LeftOut is a part of the reason why the rule is left out.
	LeftOut string `json:"leftOut"`
	// Changed is a part of the difference that is reported.
	Changed string `json:"changed"`
}

// request is an object, with the rest of the request in other fields.
type request struct {
	Object    map[string]any            `json:"object"`
	Old       map[string]any            `json:"old"`
	Operation string                    `json:"operation"`
	User      authenticationv1.UserInfo `json:"user"`
	Want      map[string]any            `json:"want"`
	Sub       string                    `json:"subresource"`
}

// UnmarshalJSON reads a request, or an object alone.
func (r *request) UnmarshalJSON(raw []byte) error {
	type plain request
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(r)); err == nil && (r.Object != nil || r.Old != nil) {
		return nil
	}
	*r = request{}
	return json.Unmarshal(raw, &r.Object)
}

// TestVerdicts converts the policies of testdata and compares their verdicts.
func TestVerdicts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files in testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var cases []testCase
			if err := yaml.UnmarshalStrict(text, &cases); err != nil {
				t.Fatal(err)
			}
			var golden strings.Builder
			for i := range cases {
				t.Run(cases[i].Name, func(t *testing.T) { cases[i].run(t, &golden) })
			}
			compareGolden(t, strings.TrimSuffix(file, ".yaml")+".golden", golden.String())
		})
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the CEL differs, run the test with -update if it should (-want +got):\n%s", diff)
	}
}

// source returns the objects to convert.
func (c *testCase) source(t *testing.T) string {
	if c.Policy != "" {
		return c.Policy
	}
	rule := map[string]any{"name": "rule"}
	kinds := c.Kinds
	if kinds == nil {
		kinds = []string{"Pod"}
	}
	rule["match"] = map[string]any{"any": []any{map[string]any{"resources": map[string]any{"kinds": kinds}}}}
	for key, value := range c.Rule {
		rule[key] = value
	}
	if v, ok := rule["validate"].(map[string]any); ok && v["allowExistingViolations"] == nil && v["cel"] == nil && v["podSecurity"] == nil {
		v["allowExistingViolations"] = false
	}
	spec := map[string]any{"validationFailureAction": "Enforce", "rules": []any{rule}}
	for key, value := range c.Spec {
		spec[key] = value
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "spec": spec,
		"metadata": map[string]any{"name": "policy", "annotations": map[string]any{"pod-policies.kyverno.io/autogen-controllers": "none"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *testCase) run(t *testing.T, golden *strings.Builder) {
	fmt.Fprintf(golden, "# %s\n", c.Name)
	conversions := convertText(t, c.source(t)+"\n---\n"+c.World)
	c.checkRows(t, conversions, golden)
	var results []load.Object
	for _, conversion := range conversions {
		for _, o := range conversion.Outputs {
			text, err := o.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden.WriteString(c.specOf(t, text))
			results = append(results, parse(t, string(text))...)
		}
	}
	golden.WriteString("\n")
	if len(c.Allow)+len(c.Deny)+len(c.Mutate) == 0 {
		return
	}
	e, w := newEngine(t, append(results, others(t, c.World)...))
	for i, r := range c.Allow {
		if result := evaluate(t, e, w, r); !result.Allowed {
			t.Errorf("allow[%d] is denied: %v", i, messages(result))
		}
	}
	for i, r := range c.Deny {
		if result := evaluate(t, e, w, r); result.Allowed {
			t.Errorf("deny[%d] is allowed", i)
		}
	}
	for i, r := range c.Mutate {
		c.checkMutation(t, e, w, i, r)
	}
}

func (c *testCase) checkMutation(t *testing.T, e *offline.Engine, w *offline.World, i int, r request) {
	result := evaluate(t, e, w, r)
	if !result.Allowed {
		t.Fatalf("mutate[%d] is denied: %v", i, messages(result))
	}
	var got map[string]any
	if err := json.Unmarshal(result.Object, &got); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	text, err := json.Marshal(complete(r.Want))
	if err != nil || json.Unmarshal(text, &want) != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutate[%d] (-want +got):\n%s", i, diff)
	}
}

func messages(r *offline.Result) (out []string) {
	for i := range r.Outcomes {
		out = append(out, r.Outcomes[i].Messages()...)
	}
	return out
}

// checkRows compares the report.
func (c *testCase) checkRows(t *testing.T, conversions []conversion.Conversion, golden *strings.Builder) {
	t.Helper()
	var left, changed []string
	for _, conversion := range conversions {
		for _, r := range conversion.Rows {
			switch r.Outcome {
			case "left out":
				left = append(left, r.Detail)
			case "changed":
				changed = append(changed, r.Detail)
			}
		}
	}
	contains := func(all []string, part string) bool {
		return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, part) })
	}
	if (c.LeftOut == "") != (len(left) == 0) || c.LeftOut != "" && !contains(left, c.LeftOut) {
		t.Errorf("left out: got %q, want %q", left, c.LeftOut)
	}
	if (c.Changed == "") != (len(changed) == 0) || c.Changed != "" && !contains(changed, c.Changed) {
		t.Errorf("changed: got %q, want %q", changed, c.Changed)
	}
	for _, l := range left {
		fmt.Fprintf(golden, "left out: %s\n", l)
	}
	for _, l := range changed {
		fmt.Fprintf(golden, "changed: %s\n", l)
	}
}

func parse(t *testing.T, text string) []load.Object {
	t.Helper()
	objects, err := load.Text(t.Context(), "test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return objects
}

func others(t *testing.T, text string) []load.Object {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return parse(t, text)
}

func convertText(t *testing.T, text string) []conversion.Conversion {
	t.Helper()
	source := classic.Source()
	in := &conversion.Input{All: parse(t, text), Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, o := range in.All {
		if source.Owns(o.GroupVersionKind().GroupKind()) {
			in.Objects = append(in.Objects, o)
		}
	}
	out, err := source.Convert(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// specOf returns the parts of a policy that the golden files have.
func (c *testCase) specOf(t *testing.T, text []byte) string {
	t.Helper()
	var p struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if c.Policy == "" && c.Spec == nil && c.Rule["match"] == nil && c.Kinds == nil {
		delete(p.Spec, "bindings")
		delete(p.Spec, "matchConstraints")
	}
	spec, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(spec)
}

// builtinAPIs are those of Kubernetes, which all tests share.
var builtinAPIs = sync.OnceValue(func() *offline.APIs {
	apis, err := offline.NewAPIs(policy.NewCompiler().Engine(), nil)
	if err != nil {
		panic(err)
	}
	return apis
})

func newEngine(t *testing.T, objects []load.Object) (*offline.Engine, *offline.World) {
	t.Helper()
	in, err := offline.Sort(objects)
	if err != nil {
		t.Fatal(err)
	}
	compiler := policy.NewCompiler()
	apis := builtinAPIs()
	if len(in.Definitions) > 0 {
		if apis, err = offline.NewAPIs(compiler.Engine(), in.Definitions); err != nil {
			t.Fatal(err)
		}
	}
	e, err := offline.NewEngine(in.Policies, compiler, apis)
	if err != nil {
		t.Fatal(err)
	}
	w := offline.NewWorld(apis, in.Namespaces, in.Objects, offline.Answers{{Decision: offline.NoOpinion}})
	w.AddExceptions(in.Exceptions)
	return e, w
}

func complete(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	out := map[string]any{"apiVersion": "v1", "kind": "Pod"}
	for key, value := range object {
		out[key] = value
	}
	metadata := map[string]any{"name": "a"}
	if given, ok := object["metadata"].(map[string]any); ok {
		for key, value := range given {
			metadata[key] = value
		}
	}
	if _, ok := metadata["namespace"]; !ok && out["kind"] != "Namespace" && out["kind"] != "PersistentVolume" && out["kind"] != "ClusterRole" {
		metadata["namespace"] = "default"
	}
	out["metadata"] = metadata
	return out
}

func object(t *testing.T, object map[string]any) *load.Object {
	t.Helper()
	if object == nil {
		return nil
	}
	text, err := yaml.Marshal(complete(object))
	if err != nil {
		t.Fatal(err)
	}
	return &parse(t, string(text))[0]
}

func evaluate(t *testing.T, e *offline.Engine, w *offline.World, r request) *offline.Result {
	t.Helper()
	made, err := e.APIs.NewRequest(object(t, r.Object), object(t, r.Old), offline.RequestOptions{
		Operation: admissionv1.Operation(r.Operation), User: r.User, Subresource: r.Sub,
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := e.Evaluate(t.Context(), made, w, offline.Options{Details: true})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
