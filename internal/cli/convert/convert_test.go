package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/clitest"
)

func run(t testing.TB, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return clitest.Run(t, NewCommand, stdin, args...)
}

// Each folder of testdata/cases has inputs, the arguments in args, and what the command
// writes to stdout and stderr.
func TestGolden(t *testing.T) {
	folders, err := filepath.Glob("testdata/cases/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(folder, "args"))
			if err != nil {
				t.Fatal(err)
			}
			args := append([]string{"-f", filepath.Join(folder, "in")}, strings.Fields(string(text))...)
			out, errOut, err := run(t, "", args...)
			if status := output.Status(err); status == output.StatusError {
				t.Fatalf("got %v, want a result", err)
			}
			clitest.Compare(t, filepath.Join(folder, "policies.yaml"), out)
			clitest.Compare(t, filepath.Join(folder, "report.txt"), fmt.Sprintf("%sexit status %d\n", errOut, output.Status(err)))
		})
	}
}

func TestInvalidInput(t *testing.T) {
	const policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n"
	tests := map[string]struct {
		stdin     string
		args      []string
		wantError string
	}{
		"no policy":      {stdin: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", wantError: "the input has no policy that this command converts: name its file with -f"},
		"half of a file": {stdin: policy + "spec:\n  validations:\n  - expression: \"object.\n", wantError: "stdin:7:1: invalid YAML: found unexpected end of stream"},
		"no kind":        {stdin: "metadata: {name: a}\n", wantError: "stdin:1:1: the document has no kind: add apiVersion and kind"},
		"unknown action": {stdin: policy, args: []string{"--actions", "deny"}, wantError: `invalid argument "deny" for "--actions" flag: must be one of [audit keep]`},
		"no input":       {args: []string{}, wantError: "at least one of the flags in the group [filename from-cluster] is required"},
		"no file":        {args: []string{"-f", "absent.yaml"}, wantError: "absent.yaml: no such file or directory"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := tt.args
			if tt.stdin != "" {
				args = append([]string{"-f", "-"}, args...)
			}
			dir := filepath.Join(t.TempDir(), "new")
			_, _, err := run(t, tt.stdin, append(args, "-o", dir)...)
			if err == nil || err.Error() != tt.wantError || output.Status(err) != output.StatusError {
				t.Errorf("got %v, want %s", err, tt.wantError)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the directory: got %v, want none", err)
			}
		})
	}
}

func TestWriteDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	out, errOut, err := run(t, "", "-f", "testdata/cases/native/in", "-o", dir)
	if err != nil || errOut != "" || !strings.HasPrefix(out, "SOURCE") {
		t.Fatalf("got %v, stdout %q, stderr %q, want only a report on stdout", err, out, errOut)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %v %v, want only the directory", entries, err)
	}
	entries, err = os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"allowed-cost-centers.yaml", "clusterrole-ostiary-params-configmaps.yaml", "default-cost-center.yaml"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if _, _, err := run(t, "", "-f", "testdata/cases/native/in", "-o", dir); err == nil || !strings.Contains(err.Error(), "is not empty: name a new one with -o, or remove it") {
		t.Errorf("again: got %v, want an error", err)
	}
}

// A result that Ostiary would reject is left out with the reason, and the others are
// written.
func TestRejectedResult(t *testing.T) {
	const policies = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: bad}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: object.spec.nope(}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: bad}
spec: {policyName: bad, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: good}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: good}
spec: {policyName: good, validationActions: [Deny]}
`
	out, errOut, err := run(t, policies, "-f", "-")
	if output.Status(err) != output.StatusFindings {
		t.Errorf("got %v, want findings", err)
	}
	if strings.Contains(out, "name: bad") || !strings.Contains(out, "name: good") {
		t.Errorf("got %s, want only the good policy", out)
	}
	if !strings.Contains(errOut, "Ostiary rejects the result: spec.validations[0].expression: ") {
		t.Errorf("got %s, want the reason", errOut)
	}
}

// Many policies of several projects convert at once, and one invalid document among them
// writes nothing.
func TestManyPolicies(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 100
	}
	var text strings.Builder
	for i := range n / 2 {
		fmt.Fprintf(&text, `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: kyverno-%d}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE]}]}
  validations: [{expression: "object.metadata.name != 'x%d'"}]
---
`, i, i%50)
	}
	for i := range n / 2 {
		fmt.Fprintf(&text, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p%d}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: "object.metadata.name != 'x%d'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p%d}
spec: {policyName: p%d, validationActions: [Deny]}
---
`, i, i%50, i, i)
	}
	dir := filepath.Join(t.TempDir(), "many")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, _, err := run(t, text.String(), "-f", "-", "-o", dir)
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	t.Logf("%d policies: %d KiB allocated for each, %d MiB in the heap", n, allocated>>10, after.HeapAlloc>>20)
	if allocated > 10<<20 {
		t.Errorf("%d bytes are allocated for each policy, want at most 10 MiB", allocated)
	}
	if err != nil || !strings.Contains(out, fmt.Sprintf("%d converted, 0 changed, 0 left out", n)) {
		t.Fatalf("got %v, %s", err, out[max(0, len(out)-300):])
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != n {
		t.Errorf("got %d files and %v, want %d", len(entries), err, n)
	}
	other := filepath.Join(t.TempDir(), "other")
	_, errOut, err := run(t, text.String()+"kind: [", "-f", "-", "-o", other)
	if output.Status(err) != output.StatusError || !strings.Contains(errOut, "skipping stdin:") {
		t.Errorf("with an invalid document: got %v and %q, want an error", err, errOut)
	}
	if entries, err := os.ReadDir(other); err != nil || len(entries) != n {
		t.Errorf("with an invalid document: got %d files and %v, want %d", len(entries), err, n)
	}
}

func FuzzConvert(f *testing.F) {
	inputs, err := filepath.Glob("testdata/cases/*/in/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range inputs {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, errOut, err := run(t, text, "-f", "-")
		if strings.Contains(errOut, "internal error") || err != nil && strings.Contains(err.Error(), "reading the result of the conversion") {
			t.Errorf("got %v, %s", err, errOut)
		}
	})
}
