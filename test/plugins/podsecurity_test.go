package plugins

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/pod-security-admission/policy"
	podsecurity "k8s.io/pod-security-admission/test"
)

var everyFixture = flag.Bool("fixtures", false,
	"run all of the Pod Security Standards' fixtures, for minutes, and not those of some checks alone")

// testFixtures runs the tests that Kubernetes has of its Pod Security Standards:
// Pods, and Deployments of them, that each check of each level passes or fails,
// in each version of it. It returns the number of checks.
func testFixtures(t *testing.T, ours *side) int {
	checks := policy.DefaultChecks()
	if !*everyFixture {
		some := []policy.CheckID{"allowPrivilegeEscalation", "hostNamespaces", "seccompProfile_restricted"}
		checks = slices.DeleteFunc(checks, func(c policy.Check) bool { return !slices.Contains(some, c.ID) })
		if len(checks) != len(some) {
			t.Fatalf("of the checks %v there are %d", some, len(checks))
		}
	}
	config := ours.plane.Config()
	config.QPS = -1
	podsecurity.Run(t, podsecurity.Options{ClientConfig: config, Checks: checks})
	return len(checks)
}

// testSamples applies the policies that the pages of the plugins show: the API server refuses a
// wrong one.
func testSamples(t *testing.T, ours *side) {
	pages, err := filepath.Glob(root + "/docs/plugins/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "\n```yaml\n")[1:] {
			block, _, _ := strings.Cut(part, "```\n")
			if !strings.Contains(block, "\nkind: WebhookPolicy\n") {
				continue
			}
			shown++
			manifest := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(manifest, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			kubectl(t, ours.plane, "apply", "--server-side", "--validate=strict", "-f", manifest)
		}
	}
	if shown < 15 {
		t.Errorf("the pages show %d policies, want one for each plugin", shown)
	}
}

// warnings are those that clients have had since they were last taken.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// take gives the warnings, in the order of their texts.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.list
	w.list = nil
	slices.Sort(out)
	return out
}
