package documents

import (
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/policytest"
)

const root = "../.."

// TestExamplesHavePolicyTests runs the PolicyTests in the folder tests beside the policies of
// the documents. Every policy has one, with all results of all expressions; no test detects
// fewer than all changes of an expression. The samples have theirs in config/samples/tests.
func TestExamplesHavePolicyTests(t *testing.T) {
	folder := t.TempDir()
	shown, err := WriteTests(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(shown) < 60 {
		t.Errorf("the documents show %d policies, want all", len(shown))
	}
	suites, err := policytest.Load(t.Context(), []string{folder}, policytest.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		for _, file := range s.Files {
			delete(shown, file)
		}
	}
	for file, e := range shown {
		t.Errorf("%s shows the policy %q, and no PolicyTest has the file %s", e.Document, e.Policy, file)
	}
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	if status := cli.Run(t.Context(), "test", []string{"test", folder, "--coverage-min", "100", "--mutate"},
		streams); status != output.StatusOK {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
}
