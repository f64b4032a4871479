package convert

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const goodPolicy = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: NAME}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE]}]}
  validations: [{expression: "object.metadata.name != 'x'"}]
`

// brokenFiles returns the contents of files that cannot be converted, with what the command writes
// about each. An empty content is a link to itself; a size is a file of zeros.
func brokenFiles() map[string]struct {
	text, want string
	size       int64
} {
	bomb := "apiVersion: v1\nkind: Pod\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := byte('b'); c < 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	deep := "apiVersion: v1\nkind: Pod\nspec: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "\n"
	return map[string]struct {
		text, want string
		size       int64
	}{
		"invalid.yaml":                  {text: "kind: [\n", want: ":2:1: invalid YAML: "},
		"binary.yaml":                   {text: "kind: \xff\xfe\n", want: ":1:7: binary data: the file must be YAML or JSON in UTF-8"},
		"large.yaml":                    {size: 30 << 20, want: ": larger than 8192 KiB, as no policy is: split it"},
		"loop.yaml":                     {want: ": the link leads to no file of the directory: replace it"},
		"templates/a.yaml":              {text: "kind: {{ .Values.kind }}\n", want: ":1:7: a template and no YAML: name the folder of its chart"},
		"deep.yaml":                     {text: deep, want: "invalid YAML: "},
		"nested.yaml":                   {text: "a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), want: "more than 200 lists and maps"},
		"twice.yaml":                    {text: "kind: Pod\nkind: Pod\n", want: `:2:1: the key "kind" is there twice: remove one of them`},
		"bomb.yaml":                     {text: bomb, want: ":9:8: the aliases of the document expand to more than"},
		"kindless.yaml":                 {text: "apiVersion: v1\n", want: ":1:1: the document has no kind: add apiVersion and kind"},
		"chart/Chart.yaml":              {text: "name: x\n", want: "the directory is a Helm chart: install helm, or render it yourself"},
		"kustomized/kustomization.yaml": {text: "resources: [a.yaml]\n", want: "the directory is a kustomization: install kustomize"},
		"definition.yaml": {
			text: "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\nspec: {group: a}\n",
			want: ":1:1: the CustomResourceDefinition a needs spec.group, spec.names.plural and spec.names.kind",
		},
		"type.yaml": {
			text: strings.Replace(goodPolicy, "NAME}", "type}", 1) + "  variables: true\n",
			want: ":8:3: spec.variables: got a bool, want an array",
		},
		"nameless.yaml": {
			text: strings.Replace(goodPolicy, "name: NAME", "labels: {}", 1),
			want: ":3:1: metadata.name: the ValidatingPolicy has no name: add it",
		},
		"kind.yaml": {text: strings.Replace(goodPolicy, "kind: ", "kind: Bad", 1), want: ":1:1: this command does not know the kind"},
		"target.yaml": {
			text: "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: a}\nspec: {targets: []}\n",
			want: ":4:8: a template has one target, got 0: correct the field",
		},
	}
}

// A repository with files that are broken in many ways converts in one run, with a list of them.
func TestRepository(t *testing.T) {
	const files, copies = 1000, 2
	t.Chdir(t.TempDir())
	t.Setenv("PATH", "")
	want := map[string]string{} // by file or directory
	for name, b := range brokenFiles() {
		for i := range copies {
			path := filepath.Join(fmt.Sprintf("folder%d", i), name)
			want[path] = b.want
			if filepath.Dir(name) == "chart" || filepath.Dir(name) == "kustomized" {
				delete(want, path)
				want[filepath.Dir(path)] = b.want
			}
			writeFile(t, path, b.text)
			switch {
			case b.size > 0:
				if err := os.Truncate(path, b.size); err != nil {
					t.Fatal(err)
				}
			case b.text == "":
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(filepath.Base(path), path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	writeFile(t, "folder0/empty.yaml", "")
	good := files - len(want)
	for i := range good {
		text := strings.Replace(goodPolicy, "NAME", fmt.Sprintf("p%d", i), 1)
		switch i {
		case 0:
			text = strings.ReplaceAll(text, "\n", "\r\n")
		case 1:
			text = "\xef\xbb\xbf" + text
		}
		writeFile(t, fmt.Sprintf("folder%d/p%d.yaml", i%7, i), text)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, errOut, err := run(t, "", "-f", ".", "-o", "out")
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d MiB are allocated", allocated)
	if maximum := uint64(10 * files); allocated > maximum {
		t.Errorf("%d MiB are allocated, want at most %d", allocated, maximum)
	}
	if output.Status(err) != output.StatusError || !strings.Contains(out, fmt.Sprintf("%d converted, 0 changed, 8 left out", good)) {
		t.Fatalf("got %v, %s", err, out[max(0, len(out)-300):])
	}
	if entries, err := os.ReadDir("out"); err != nil || len(entries) != good {
		t.Errorf("got %d files and %v, want %d", len(entries), err, good)
	}
	lines := strings.Split(errOut+out, "\n")
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if !slices.ContainsFunc(lines, func(line string) bool {
			_, text, found := strings.Cut(line, path)
			return found && strings.Contains(text, want[path])
		}) {
			t.Errorf("%s is not listed, want %q", path, want[path])
		}
	}
	if t.Failed() {
		t.Log(errOut)
	}
	out, errOut, err = run(t, "", "-f", ".", "--inventory")
	if output.Status(err) != output.StatusError || !strings.Contains(out, fmt.Sprint(good)) ||
		strings.Count(errOut, "skipping ") != len(want)-8 ||
		!strings.Contains(out, `parts of the input are skipped: the lines with "skipping" say why`) {
		t.Errorf("the inventory: got %v, %s%s", err, out, errOut)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An object that cannot be read is left out with its position, and has a row in the report.
func TestInvalidObjects(t *testing.T) {
	const policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n"
	tests := map[string]struct{ stdin, want string }{
		"a wrong type": {
			stdin: policy + "spec:\n  validations: true\n",
			want:  "stdin:5:3: spec.validations: got a bool, want an array",
		},
		"no name": {
			stdin: "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nspec: {}\n",
			want:  "stdin:1:1: metadata.name: the ValidatingAdmissionPolicy has no name: add it",
		},
		"no target": {
			stdin: "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: a}\nspec: {targets: []}\n",
			want:  "stdin:4:8: a template has one target, got 0: correct the field",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, tt.stdin, "-f", "-")
			if output.Status(err) != output.StatusFindings || out != "" || !strings.Contains(errOut, tt.want) {
				t.Errorf("got %v, %s%s, want %s", err, out, errOut, tt.want)
			}
		})
	}
}
