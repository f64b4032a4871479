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

// TestSamples: the page of every plugin shows a policy with it, which is
// accepted.
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
		_, block, _ := strings.Cut(string(text), "\n```yaml\n")
		block, _, _ = strings.Cut(block, "```\n")
		var p v1alpha1.WebhookPolicy
		if err := yaml.UnmarshalStrict([]byte(block), &p); err != nil || p.Spec.Plugin == nil {
			t.Errorf("%s: the first block of YAML is no policy with a plugin: %v", page, err)
			continue
		}
		shown[p.Spec.Plugin.Name] = true
		if verdict := validation.Validate(policy.NewCompiler(), &p, egress.Rule{}); len(verdict.Errors) > 0 {
			t.Errorf("%s: %v", page, verdict.Errors)
		}
	}
	for _, d := range plugins.All() {
		if !shown[d.Name] {
			t.Errorf("no page in docs/plugins shows a policy with %s", d.Name)
		}
	}
}
