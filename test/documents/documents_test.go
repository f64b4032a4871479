package documents

import (
	"os"
	"path/filepath"
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
	if err := os.CopyFS(folder, os.DirFS("tests")); err != nil {
		t.Fatal(err)
	}
	shown := writeExamples(t, folder)
	suites, err := policytest.Load(t.Context(), []string{folder}, nil)
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
	if status := cli.Run(t.Context(), "test", []string{"test", folder, "--coverage-min", "100", "--mutate"}, streams); status != output.StatusOK {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
}

// writeExamples writes each policy of the documents to its file, and returns them by file.
func writeExamples(t *testing.T, folder string) map[string]Example {
	t.Helper()
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Example{}
	for _, document := range all {
		examples, err := Examples(root, document)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range examples {
			if IsSample(document) {
				continue
			}
			if other, ok := out[e.File()]; ok {
				t.Fatalf("%s and %s have the same name", other.Document, e.Document)
			}
			out[e.File()] = e
			path := filepath.Join(folder, e.File())
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(e.Manifest), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(out) < 25 {
		t.Errorf("the documents show %d policies, want all", len(out))
	}
	return out
}
