package lint

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/kubernetes"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// lint runs the command in a directory with one file.
func lint(t *testing.T, content string, args ...string) (out string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("policies.yaml", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	streams, _, stdout, _ := genericiooptions.NewTestIOStreams()
	c := NewCommand(&output.Options{IOStreams: streams, Version: "v1.2.3"})
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"-f", "policies.yaml"}, args...))
	err = c.ExecuteContext(context.Background())
	return stdout.String(), err
}

// policyOf returns a policy for a resource with a validation, and with more fields.
func policyOf(name, group, resource, expression, more string) string {
	return `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata:
  name: ` + name + `
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [` + group + `]
      apiVersions: [v1]
      resources: [` + resource + `]
      operations: [CREATE]
  validations:
  - expression: ` + expression + "\n" + more
}

const widgets = `---
apiVersion: apiextensions.k8s.io/v1
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
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
`

func TestLint(t *testing.T) {
	const good = "has(object.metadata.labels)"
	for name, tc := range map[string]struct {
		content string
		args    []string
		want    string
		status  int
	}{
		"a good policy": {content: policyOf("a", `""`, "pods", good, ""), want: "1 policy without findings\n"},
		"an unknown field": {
			content: policyOf("a", `""`, "pods", good, "  timeout: 5\n"), status: output.StatusFindings,
			want: "policies.yaml:14:3: error: spec.timeout: WebhookPolicy has no such field: correct or remove it\n",
		},
		"several fields of another type": {
			content: policyOf("a", `""`, "pods", good, "  timeoutSeconds: soon\n"), status: output.StatusFindings,
			want: "policies.yaml:14:3: error: spec.timeoutSeconds: got a string, want a number\n",
		},
		"a value out of range": {
			content: policyOf("a", `""`, "pods", good, "  timeoutSeconds: 300\n"), status: output.StatusFindings,
			want: "policies.yaml:14:3: error: a: spec.timeoutSeconds: Invalid value: 300: spec.timeoutSeconds in body should " +
				"be less than or equal to 30\n",
		},
		"a rule of the definition": {
			content: policyOf("a", `""`, "pods", good, "  bindings:\n  - name: A\n"), status: output.StatusFindings,
			want: "policies.yaml:15:5: error: a: spec.bindings[0].name: Invalid value: \"A\": write name with lower-case " +
				"letters, digits and '-', beginning and ending with a letter or digit\n",
		},
		"an invalid name": {
			content: policyOf("A_b", `""`, "pods", good, ""), status: output.StatusFindings,
			want: "policies.yaml:4:3: error: A_b: metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must " +
				"consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character " +
				"(e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n",
		},
		"an expression that does not compile": {
			content: policyOf("a", `""`, "pods", "object.", ""), status: output.StatusFindings,
			want: "policies.yaml:13:5: error: a: spec.validations[0].expression: Invalid value: \"object.\": compilation " +
				"failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'  | object.  | .......^\n",
		},
		"a risk": {
			content: policyOf("a", `""`, "pods", good, "  timeoutSeconds: 30\n"), status: output.StatusFindings,
			want: "policies.yaml:14:3: warning: a: spec.timeoutSeconds: requests wait up to 30 seconds while Ostiary does not " +
				"answer, longer than many clients do; choose 10 or less\n",
		},
		"a resource that is not served": {
			content: policyOf("a", "apps", "deployment", good, ""), status: output.StatusFindings,
			want: "policies.yaml:10:19: warning: a: spec.matchConstraints.resourceRules[0].resources[0]: the API server does " +
				"not serve \"deployment\" in these groups and versions, did you mean \"deployments\"?\n",
		},
		"a field that does not exist": {
			content: policyOf("a", "apps", "deployments", "object.spec.replicaz > 1", ""), status: output.StatusFindings,
			want: "policies.yaml:13:5: warning: a: spec.validations[0].expression: Deployment has no field spec.replicaz, did you mean replicas?\n",
		},
		"a custom resource": {
			content: policyOf("a", "example.com", "widgets", "object.?spec.?size.orValue(0) > 1", widgets),
			want:    "1 policy without findings\n",
		},
		"an optional field of a custom resource": {
			content: policyOf("a", "example.com", "widgets", "object.spec.size > 1", widgets), status: output.StatusFindings,
			want: "policies.yaml:13:5: warning: a: spec.validations[0].expression: CREATE of widgets can fail with \"no such " +
				"key: spec\": write object.?spec.?size.orValue(0)\n",
		},
		"a custom resource without its definition": {
			content: policyOf("a", "example.com", "widgets", "object.spec.size > 1", ""), status: output.StatusFindings,
			want: "policies.yaml:8:19: warning: a: spec.matchConstraints.resourceRules[0].apiGroups[0]: the API server has no " +
				"group \"example.com\": correct it, unless it is still to be installed\n",
		},
		"a field that a custom resource does not have": {
			content: policyOf("a", "example.com", "widgets", "object.spec.color == 'red'", widgets), status: output.StatusFindings,
			want: "policies.yaml:13:5: warning: a: spec.validations[0].expression: Widget has no field spec.color\n",
		},
		"a function of a later version": {
			content: policyOf("a", `""`, "pods", `"['a'].includes('a')"`, ""), args: []string{"--kubernetes-version", "1.36"},
			status: output.StatusFindings,
			want: "policies.yaml:13:5: warning: a: spec.validations[0].expression: Kubernetes 1.36 and before have no " +
				"function includes(), and 1.37 has: use the operator in\n",
		},
		"two policies, of which one cannot be read": {
			content: policyOf("a", `""`, "pods", good, "  timeout: 5\n") + "---\n" + policyOf("b", `""`, "pods", good,
				"  timeoutSeconds: 30\n"), status: output.StatusFindings,
			want: "policies.yaml:14:3: error: spec.timeout: WebhookPolicy has no such field: correct or remove it\n" +
				"policies.yaml:29:3: warning: b: spec.timeoutSeconds: requests wait up to 30 seconds while Ostiary does not " +
				"answer, longer than many clients do; choose 10 or less\n",
		},
		"no policy": {content: "{apiVersion: v1, kind: Pod}", status: output.StatusError},
		"not YAML": {
			content: "a: [",
			status:  output.StatusFindings,
			want:    "policies.yaml:2:1: error: invalid YAML: did not find expected node content\n",
		},
		"equal names": {
			content: policyOf("a", `""`, "pods", good, "---\n") + policyOf("a", `""`, "pods", good, ""), status: output.StatusFindings,
			want: "policies.yaml:18:3: error: metadata.name: the policy \"a\" is also at policies.yaml:4:3: remove one of them\n",
		},
		"another flag": {
			content: policyOf("a", `""`, "pods", good, ""),
			args:    []string{"--kubernetes-version", "1.2"},
			status:  output.StatusError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lint(t, tc.content, tc.args...)
			if status := output.Status(err); status != tc.status {
				t.Errorf("status %d (%v), want %d", status, err, tc.status)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	golden, err := filepath.Abs("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	content := policyOf("a", `""`, "pods", "object.", "") + "---\n" + policyOf("b", "apps", "deployments", "object.spec.replicaz > 1", "")
	for _, format := range []string{"table", "json", "yaml", "sarif", "github"} {
		t.Run(format, func(t *testing.T) {
			got, err := lint(t, content, "-o", format)
			if output.Status(err) != output.StatusFindings {
				t.Errorf("got error %v", err)
			}
			file := filepath.Join(golden, format+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFormatsWithoutFindings(t *testing.T) {
	for _, format := range []string{"json", "sarif"} {
		got, err := lint(t, policyOf("a", `""`, "pods", `"true"`, ""), "-o", format)
		if err != nil || !json.Valid([]byte(got)) || strings.Contains(got, "null") {
			t.Errorf("%s: got %s, %v", format, got, err)
		}
	}
}

// Every supported version has the schemas of its kinds.
func TestSchemasOfVersions(t *testing.T) {
	for e := policy.OldestEngine; e <= policy.LatestEngine; e++ {
		schemas, err := kubernetes.NewSchemas(e)
		if err != nil {
			t.Fatal(err)
		}
		lists, err := kubernetes.Resources(e)
		if err != nil {
			t.Fatal(err)
		}
		for gv := range lists {
			document, err := schemas.Document(gv)
			if err != nil || document == nil {
				t.Errorf("Kubernetes %s: the schemas of %s: got %v, %v", e, gv, document, err)
			}
		}
		if document, err := schemas.Document(apischema.GroupVersion{Group: "../..", Version: "v1"}); err != nil || document != nil {
			t.Errorf("an unknown group: got %v, %v", document, err)
		}
	}
}

// FuzzCheck checks that every policy gives findings with a text, or an error.
func FuzzCheck(f *testing.F) {
	paths, err := filepath.Glob("../../../config/samples/[0-9]*.yaml")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no samples: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := load.Objects(t.Context(), []string{"-"}, load.Options{Stdin: strings.NewReader(text)})
		if err != nil {
			return // FuzzObjects checks it
		}
		findings, _, err := Check(t.Context(), objects, nil, policy.LatestEngine, time.Now())
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
		for _, found := range findings {
			if found.Message == "" || found.Rule == "" {
				t.Errorf("incomplete: %+v", found)
			}
		}
	})
}

// TestRefutedDenials checks that the request of a case which passes refutes a finding that the
// policy denies everything.
func TestRefutedDenials(t *testing.T) {
	const denial = "CREATE of configmaps is denied for every object that was tried"
	const another = "CREATE of configmaps can fail"
	test := func(label, decision string) string {
		return `---
apiVersion: test.ostiary.dev/v1alpha1
kind: PolicyTest
metadata: {name: t}
policies: [p]
cases:
- name: a
  object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {team: ` + label + `}}}
  expect: {decision: ` + decision + "}\n"
	}
	for name, tc := range map[string]struct {
		tests string
		want  []string
	}{
		"no test":                   {want: []string{denial, another}},
		"a case that is allowed":    {tests: test("x", "Allow"), want: []string{another}},
		"a case that is denied":     {tests: test("y", "Deny"), want: []string{denial, another}},
		"a case that does not pass": {tests: test("x", "Deny"), want: []string{denial, another}},
		"a test that is not read": {
			tests: "---\nkind: PolicyTest\napiVersion: test.ostiary.dev/v1alpha1\n",
			want:  []string{denial, another},
		},
		"a test of a policy not there": {tests: strings.Replace(test("x", "Allow"), "[p]", "[q]", 1), want: []string{denial, another}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			text := policyOf("p", `""`, "configmaps", `"object.metadata.?labels.?team.orValue('') == 'x'"`, "") + tc.tests
			if err := os.WriteFile("policies.yaml", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := &command{Options: &output.Options{}}
			c.Files = []string{"policies.yaml"}
			found := []Finding{{Policy: "p", Message: denial, kind: advice.DeniesAll}, {Policy: "p", Message: another}}
			var got []string
			for _, f := range c.withoutRefuted(t.Context(), found) {
				got = append(got, f.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
