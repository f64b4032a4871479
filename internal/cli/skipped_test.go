package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// TestSkipped runs each command that reads files with a broken file, an invalid policy and an
// object of an unknown kind among them: it reports them, and does the rest.
func TestSkipped(t *testing.T) {
	files := map[string]string{
		"broken.yaml":  "kind: [\n---\n{apiVersion: v1, kind: List, items: [{apiVersion: v1}]}\n",
		"invalid.yaml": "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: invalid}, spec: {nothing: 1}}\n",
		"test.yaml":    "{apiVersion: test.ostiary.dev/v1alpha1, kind: PolicyTest, metadata: {name: invalid}}\n",
	}
	const broken = "skipping broken.yaml:2:1: invalid YAML: did not find expected node content\n" +
		"skipping broken.yaml:3:38: the document has no kind: add apiVersion and kind\n"
	const invalid = "skipping invalid.yaml:1:101: spec.nothing: WebhookPolicy has no such field: correct or remove it\n"
	for name, tc := range map[string]struct {
		args       string
		wantOut    string // a part
		wantErrOut string
		wantStatus int // StatusError if it is 0
	}{
		"eval": {
			args: "eval -f policy.yaml -f pods.yaml -f broken.yaml -f invalid.yaml", wantOut: "require-team-label   deny",
			wantErrOut: broken + invalid + "error: 2 objects, 1 policy: 1 object denied, 0 errors; the result is without what was skipped\n",
		},
		"explain": {
			args: "explain require-team-label -f policy.yaml -f broken.yaml --object pod.yaml", wantOut: "require-team-label: deny",
			wantErrOut: broken + "error: the result is without what was skipped\n",
		},
		"replay": {
			args: "replay --audit-log audit.log -f policy.yaml -f broken.yaml -f invalid.yaml", wantOut: "require-team-label   deny",
			wantErrOut: broken + invalid + "2 events, 2 requests replayed\nerror: 1 denial, 0 errors; the result is without what was skipped\n",
		},
		"convert": {
			args: "convert -f native.yaml -f broken.yaml", wantOut: "kind: WebhookPolicy",
			wantErrOut: broken + "SOURCE                                           RULE   RESULT      DETAIL\n" +
				"MutatingAdmissionPolicy default-cost-center             converted\nValidatingAdmissionPolicy allowed-cost-centers          converted\n" +
				"2 converted, 0 changed, 0 left out\n2 parts of the input are skipped: the lines with \"skipping\" say why\n" +
				"1 policy has the action Audit: --actions keep keeps the actions of their sources\nerror: the result is without what was skipped\n",
		},
		"doctor": {
			args: "doctor -f dump.yaml -f broken.yaml", wantOut: "Fix: ",
			wantErrOut: broken + "error: 0 errors, 2 warnings; the result is without what was skipped\n",
		},
		"status": {
			args: "status -f cluster.yaml -f broken.yaml", wantOut: "require-team-label",
			wantErrOut: broken + "error: 1 policy is not ready; the result is without what was skipped\n",
		},
		"test": {
			args: "test tests test.yaml", wantOut: "PASS",
			wantErrOut: "skipping test.yaml:1:1: policies: name the policies to test\nskipping test.yaml:1:1: cases: the test has no cases: add one\n4 cases passed\nerror: the result is without what was skipped\n",
		},
		"lint": {
			args: "lint -f policy.yaml -f broken.yaml -f invalid.yaml",
			wantOut: "broken.yaml:2:1: error: invalid YAML: did not find expected node content\n" +
				"broken.yaml:3:38: error: the document has no kind: add apiVersion and kind\n" +
				"invalid.yaml:1:101: error: spec.nothing: WebhookPolicy has no such field: correct or remove it\n",
			wantErrOut: "3 errors, 0 warnings\n", wantStatus: output.StatusFindings,
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			if err := os.CopyFS(directory, os.DirFS(filepath.Join("testdata", "examples"))); err != nil {
				t.Fatal(err)
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(directory)
			status, out, errOut := run(t, strings.Fields(tc.args)...)
			if want := cmp.Or(tc.wantStatus, output.StatusError); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
			if !strings.Contains(out, tc.wantOut) {
				t.Errorf("stdout does not have %q:\n%s", tc.wantOut, out)
			}
			if diff := gocmp.Diff(tc.wantErrOut, errOut); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}
