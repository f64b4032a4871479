package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// Texts that change a terminal, and workflow commands of GitHub.
const (
	hostileText    = `\e]0;title\a \e[2J \u202e \u009b \u200b`
	hostileCommand = `line\n::set-output name=a::b\n::stop-commands::x\n##[command]x\n`
)

// TestOutputIsSanitized runs commands with files that have such texts wherever they reach
// the output.
func TestOutputIsSanitized(t *testing.T) {
	const policy = "apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicy\nmetadata: {name: %s}\nspec:\n" +
		"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}\n  %s\n"
	configMap := `{apiVersion: v1, kind: ConfigMap, metadata: {name: "a` + hostileText + `", namespace: b, annotations: {a: "` + hostileText + hostileCommand + `"}}}`
	test := "apiVersion: test.ostiary.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: t}\nfiles: [policies.yaml]\npolicies: [deny, mutate]\ncases:\n" +
		`- {name: "n` + hostileText + `", object: ` + configMap + ", expect: {decision: Allow}}\n" +
		`- {name: "m` + hostileCommand + `", object: ` + strings.Replace(configMap, "annotations: {", "annotations: {allow: '', ", 1) +
		", expect: {decision: Mutate, object: " + strings.Replace(configMap, "annotations: {", "annotations: {allow: '', ", 1) + "}}\n"
	files := map[string]string{
		"policies.yaml": fmt.Sprintf(policy, "deny", `validations: [{expression: "has(object.metadata.annotations.allow)", message: "`+hostileText+`", messageExpression: "string(object.metadata.annotations.a)"}]`) +
			"---\n" + fmt.Sprintf(policy, "mutate", `mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}}]`),
		"field.yaml":     "apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicy\nmetadata: {name: e}\nspec: {\"" + hostileText + `": 1, "` + hostileCommand + "\": 2}\n",
		"object.yaml":    strings.ReplaceAll(configMap, "{allow: '', ", "{"),
		"test.yaml":      test,
		"named\x1b.yaml": "kind: [",
	}
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string][]string{
		"test":           {"test", "test.yaml"},
		"test, verbose":  {"test", "test.yaml", "-v", "--coverage"},
		"test as JUnit":  {"test", "test.yaml", "-o", "junit"},
		"test on GitHub": {"test", "test.yaml", "-o", "github"},
		"test as JSON":   {"test", "test.yaml", "-o", "json"},
		"test as YAML":   {"test", "test.yaml", "-o", "yaml"},
		"eval":           {"eval", "-f", "policies.yaml", "-f", "object.yaml"},
		"eval as YAML":   {"eval", "-f", "policies.yaml", "-f", "object.yaml", "-o", "yaml"},
		"lint":           {"lint", "-f", "field.yaml"},
		"lint on GitHub": {"lint", "-f", "field.yaml", "-o", "github"},
		"lint as SARIF":  {"lint", "-f", "field.yaml", "-o", "sarif"},
		"an error":       {"eval", "-f", "field.yaml", "-f", "object.yaml"},
		"a file":         {"lint", "-f", "named\x1b.yaml"},
		"a missing file": {"doctor", "-f", "none\x1b]0;x\x07.yaml"},
		"an argument":    {"lint", "\u202e::x"},
		"a flag":         {"lint", "--\x1b[2J"},
		"a command":      {"\x1b[2J"},
	}
	for name, args := range tests {
		for _, actions := range []string{"", "true"} {
			t.Run(name+" "+actions, func(t *testing.T) {
				t.Setenv("GITHUB_ACTIONS", actions)
				status, out, errOut := run(t, args...)
				if status == output.StatusOK || !strings.Contains(out+errOut, `\u`) && !strings.Contains(errOut, `\x1b`) {
					t.Errorf("status %d, without an escape:\n%s%s", status, out, errOut)
				}
				own := 0
				for _, r := range out + errOut {
					if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
						t.Fatalf("%U in\n%s%s", r, out, errOut)
					}
				}
				if actions == "" && !strings.HasSuffix(name, "GitHub") {
					return
				}
				for line := range strings.Lines(out + errOut) {
					if strings.HasPrefix(line, "::error file=") && strings.HasSuffix(name, "GitHub") {
						own++
						continue
					}
					if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") {
						t.Errorf("the workflow command %s", line)
					}
				}
				if strings.HasSuffix(name, "GitHub") && own == 0 {
					t.Errorf("without a workflow command:\n%s", out)
				}
			})
		}
	}
}
