package plugins_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
)

// TestSamples: the documents show a policy with every plugin, which is accepted.
func TestSamples(t *testing.T) {
	pages, err := filepath.Glob("../../docs/plugins/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[v1alpha1.PluginName]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, manifest := range policiesOf(string(text)) {
			var p v1alpha1.WebhookPolicy
			if err := yaml.UnmarshalStrict([]byte(manifest), &p); err != nil || p.Spec.Plugin == nil {
				t.Errorf("%s shows a policy without a plugin: %v\n%s", page, err, manifest)
				continue
			}
			shown[p.Spec.Plugin.Name] = true
			if verdict := validation.Validate(policy.NewCompiler(), &p, egress.Rule{}); len(verdict.Errors) > 0 {
				t.Errorf("%s: %s: %v", page, p.Name, verdict.Errors)
			}
		}
	}
	for _, d := range plugins.All() {
		if !shown[d.Name] {
			t.Errorf("no page in docs/plugins shows a policy with %s", d.Name)
		}
	}
}

// policiesOf returns the policies in the YAML blocks of a document.
func policiesOf(document string) (out []string) {
	for _, part := range strings.Split(document, "\n```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```\n")
		if strings.Contains(block, "\nkind: WebhookPolicy\n") {
			out = append(out, block)
		}
	}
	return out
}
