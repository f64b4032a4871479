package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n"

// writeFiles writes files into a new directory.
func writeFiles(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func namesOf(objects []Object) (out []string) {
	for i := range objects {
		out = append(out, objects[i].String())
	}
	return out
}

func TestObjects(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		paths []string
		stdin string
		want  []string
	}{
		"one file": {files: map[string]string{"a.yaml": pod}, paths: []string{"a.yaml"}, want: []string{"Pod shop/web"}},
		"several documents": {
			files: map[string]string{"a.yaml": "# nothing\n---\n" + pod + "--- # next\n" + pod + "---\n"},
			paths: []string{"a.yaml"},
			want:  []string{"Pod shop/web", "Pod shop/web"},
		},
		"JSON": {
			files: map[string]string{"a.json": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}}`},
			paths: []string{"a.json"},
			want:  []string{"Pod web-"},
		},
		"JSON with tabs": {
			files: map[string]string{"a.json": "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\"}"},
			paths: []string{"a.json"},
			want:  []string{"Pod "},
		},
		"a list": {
			files: map[string]string{
				"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n" +
					"- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
			},
			paths: []string{"a.yaml"},
			want:  []string{"Pod a", "Pod b"},
		},
		"a list of a group": {
			files: map[string]string{
				"a.yaml": "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- {metadata: {name: a}}\n" +
					"- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
			},
			paths: []string{"a.yaml"},
			want:  []string{"Deployment a", "Pod b"},
		},
		"lists in a list": {
			files: map[string]string{
				"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: PodList\n" +
					"  items: [{metadata: {name: a}}, {}]\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
			},
			paths: []string{"a.yaml"},
			want:  []string{"Pod a", "Pod ", "Pod b"},
		},
		"an empty list": {
			files: map[string]string{
				"a.yaml": "apiVersion: v1\nkind: PodList\nitems: null\n---\napiVersion: apps/v1\nkind: DeploymentList\nitems: []\n",
			},
			paths: []string{"a.yaml"},
		},
		"kinds like a list": {
			files: map[string]string{
				"a.yaml": "apiVersion: x.y/v1\nkind: AllowList\nspec: {items: [a]}\n---\napiVersion: x.y/v1\nkind: AllowList\nitems: [a]\n",
			},
			paths: []string{"a.yaml"},
			want:  []string{"AllowList ", "AllowList "},
		},
		"stdin": {stdin: pod, paths: []string{"-"}, want: []string{"Pod shop/web"}},
		"a directory": {
			files: map[string]string{
				"b.yaml":      pod,
				"a/c.json":    `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}`,
				"README.md":   "no YAML",
				".git/x.yaml": "no: kind",
			},
			paths: []string{"."},
			want:  []string{"Node n", "Pod shop/web"},
		},
		"a byte order mark": {
			files: map[string]string{"a.yaml": "\xef\xbb\xbf" + pod},
			paths: []string{"a.yaml"},
			want:  []string{"Pod shop/web"},
		},
		"line ends of Windows": {
			files: map[string]string{"a.yaml": strings.ReplaceAll(pod+"---\n"+pod, "\n", "\r\n")},
			paths: []string{"a.yaml"},
			want:  []string{"Pod shop/web", "Pod shop/web"},
		},
		"a separator in a text": {
			files: map[string]string{"a.yaml": pod + "data: |\n  ---\n  text\n"},
			paths: []string{"a.yaml"},
			want:  []string{"Pod shop/web"},
		},
		"a few aliases": {
			files: map[string]string{"a.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: &n web, labels: {app: *n}}\n"},
			paths: []string{"a.yaml"},
			want:  []string{"Pod web"},
		},
		"nothing but a comment": {files: map[string]string{"a.yaml": "# nothing\n"}, paths: []string{"a.yaml"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(writeFiles(t, tt.files))
			got, err := Objects(t.Context(), tt.paths, Options{Stdin: strings.NewReader(tt.stdin)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, namesOf(got)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// Documents with neither apiVersion nor kind, and directories that are read file by file.
func TestOptions(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{
		"set/kustomization.yaml": "resources: [absent.yaml]\n", "set/a.yaml": pod, "set/.tests/b.yaml": strings.ReplaceAll(pod, "web", "test"),
		"set/.other/c.yaml": pod, "set/typed.yaml": "results: []\n---\n{}\n",
	}))
	var skipped []string
	objects, err := Objects(t.Context(), []string{"set"}, Options{
		Plain: func(directory string) bool { return directory == "set" || filepath.Base(directory) == ".tests" },
		Untyped: func(at Position, raw []byte) []byte {
			if at.File == filepath.Join("set", "typed.yaml") && len(raw) > 2 {
				return []byte(`{"apiVersion": "v1", "kind": "Test", ` + string(raw[1:]))
			}
			skipped = append(skipped, at.String())
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod shop/test", "Pod shop/web", "Test "}, namesOf(objects)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	slices.Sort(skipped)
	if diff := cmp.Diff([]string{"set/kustomization.yaml:1:1", "set/typed.yaml:2:1"}, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}

// Documents are read concurrently; those without a type are shown one by one in their order.
func TestUntyped(t *testing.T) {
	var text strings.Builder
	var want []string
	for i := range 200 {
		fmt.Fprintf(&text, "---\nnumber: %d\n", i)
		want = append(want, fmt.Sprintf(`{"number":%d}`, i))
	}
	var got []string
	objects, err := Objects(t.Context(), []string{Stdin},
		Options{Stdin: strings.NewReader(text.String()), Untyped: func(_ Position, raw []byte) []byte {
			got = append(got, strings.TrimSpace(string(raw)))
			return nil
		}})
	if err != nil || len(objects) != 0 {
		t.Fatalf("got %d objects and %v, want none", len(objects), err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}

func TestInvalidInput(t *testing.T) {
	deep := "apiVersion: v1\nkind: Pod\nspec: " + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "\n"
	bomb := "apiVersion: v1\nkind: Pod\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i, last := 'b', 'a'; i < 'i'; i, last = i+1, i {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", i, i, strings.TrimSuffix(strings.Repeat("*"+string(last)+",", 10), ","))
	}
	tests := map[string]struct{ text, want string }{
		"no kind": {
			text: "apiVersion: v1\nmetadata: {}\n",
			want: "a.yaml:1:1: the document has no kind: add apiVersion and kind",
		},
		"no kind, later": {
			text: pod + "---\n\nmetadata: {}\n",
			want: "a.yaml:6:1: the document has no kind: add apiVersion and kind",
		},
		"no apiVersion": {
			text: "metadata: {}\nkind: Pod\n",
			want: "a.yaml:2:1: kind: the document has no apiVersion: add it",
		},
		"an invalid apiVersion": {
			text: "apiVersion: a/b/c\nkind: Pod\n",
			want: `a.yaml:1:1: apiVersion: write it as group/version or v1, got "a/b/c"`,
		},
		"a kind of a wrong type": {text: "apiVersion: v1\nkind: 1\n", want: "a.yaml:2:1: kind: got number, want a string"},
		"no object":              {text: "just text\n", want: "a.yaml:1:1: got a string, want an object"},
		"a list of objects":      {text: "- apiVersion: v1\n", want: "a.yaml:1:1: got an array, want an object"},
		"a duplicate key": {
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  name: b\n",
			want: `a.yaml:5:3: the key "name" is there twice: remove one of them`,
		},
		"a duplicate in JSON": {
			text: "{\"apiVersion\": \"v1\",\n \"kind\": \"Pod\", \"kind\": \"Pod\"}",
			want: `a.yaml:2:17: the key "kind" is there twice: remove one of them`,
		},
		"a tab": {
			text: "apiVersion: v1\nmetadata:\n\tname: a\n",
			want: "a.yaml:3:1: a tab indents the line: use spaces",
		},
		"an unclosed list": {
			text: "apiVersion: v1\nspec: [a\nkind: Pod\n",
			want: "a.yaml:3:1: invalid YAML: did not find expected ',' or ']'",
		},
		"binary data": {
			text: "apiVersion: v1\nkind: \xff\xfe\n",
			want: "a.yaml:2:7: binary data: the file must be YAML or JSON in UTF-8",
		},
		"a null byte": {
			text: "apiVersion: v1\x00\n",
			want: "a.yaml:1:15: binary data: the file must be YAML or JSON in UTF-8",
		},
		"too much depth": {text: deep, want: "a.yaml:3:205: more than 200 lists and maps are within each other: remove some of them"},
		"too much depth, JSON": {
			text: `{"a": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}",
			want: "a.yaml:1:206: more than 200 lists and maps are within each other: remove some of them",
		},
		"exploding aliases": {
			text: bomb,
			want: "a.yaml:9:8: the aliases of the document expand to more than 1048576 values, or one contains itself: write the values out",
		},
		"an alias of itself": {
			text: "apiVersion: v1\nkind: Pod\na: &a [*a]\n",
			want: "a.yaml:3:8: the aliases of the document expand to more than 1048576 values, or one contains itself: write the values out",
		},
		"an unknown alias": {
			text: "apiVersion: v1\nkind: *x\n",
			want: "a.yaml:1:1: invalid YAML: unknown anchor 'x' referenced",
		},
		"an item without kind": {
			text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- {apiVersion: v1}\n",
			want: "a.yaml:5:3: the document has no kind: add apiVersion and kind",
		},
		"a list without items": {
			text: "apiVersion: v1\nkind: List\nitems: 3\n",
			want: "a.yaml:3:1: items: want an array of objects",
		},
		"a template of Helm": {
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Release.Name }}}\n",
			want: "a.yaml:3:18: a template and no YAML: name the folder of its chart, which helm renders",
		},
		"labels of wrong type": {
			text: "apiVersion: v1\nkind: Pod\nmetadata: {labels: [a]}\n",
			want: "a.yaml:3:12: metadata.labels: got an array, want an object",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(writeFiles(t, map[string]string{"a.yaml": tt.text}))
			_, err := Objects(t.Context(), []string{"a.yaml"}, Options{})
			var located *Error
			if !errors.As(err, &located) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

// TestSkip reads what it can: other documents of a file, other items of a list, other files,
// and what is beside a chart that no program renders.
func TestSkip(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{
		"a.yaml":           "kind: [\n---\n" + pod,
		"b.yaml":           "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
		"c.yaml":           "\xff",
		"chart/Chart.yaml": "name: x\n",
		"d/e.yaml":         "metadata: {}\n---\n" + strings.ReplaceAll(pod, "web", "d"),
	}))
	t.Setenv("PATH", "")
	var skipped []string
	objects, err := Objects(t.Context(), []string{"."}, Options{Skip: func(err error) { skipped = append(skipped, err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod shop/web", "Pod b", "Pod shop/d"}, namesOf(objects)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	want := []string{
		"chart: the directory is a Helm chart: install helm, or render it yourself",
		"c.yaml:1:1: binary data: the file must be YAML or JSON in UTF-8",
		"a.yaml:2:1: invalid YAML: did not find expected node content",
		"b.yaml:4:3: the document has no kind: add apiVersion and kind",
		"d/e.yaml:1:1: the document has no kind: add apiVersion and kind",
	}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if _, err := Objects(t.Context(), []string{"absent.yaml"}, Options{Skip: func(error) {}}); err == nil {
		t.Error("no error for a file that does not exist")
	}
}

func TestInvalidPaths(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{"empty/README.md": ""}))
	t.Setenv("PATH", "")
	tests := map[string]struct {
		paths []string
		stdin io.Reader
		want  string
	}{
		"no file":            {paths: []string{"a.yaml"}, want: "a.yaml: no such file or directory"},
		"an empty directory": {paths: []string{"empty"}, want: "empty: the directory has no .yaml, .yml or .json file"},
		"a device":           {paths: []string{"/dev/zero"}, want: "/dev/zero: not a file: name a file, a directory or - for stdin"},
		"stdin twice":        {paths: []string{"-", "-"}, stdin: strings.NewReader(pod), want: `stdin: there is no input left: name "-" once`},
		"too much":           {paths: []string{"-"}, stdin: zeros{}, want: "stdin: larger than 100 MiB: split it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Objects(t.Context(), tt.paths, Options{Stdin: tt.stdin})
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestLargeDocument(t *testing.T) {
	text := append([]byte("apiVersion: v1\nkind: Pod\n#"), bytes.Repeat([]byte("x"), maxDocument)...)
	_, err := Objects(t.Context(), []string{"-"}, Options{Stdin: bytes.NewReader(text)})
	if want := "stdin:1:1: the document is larger than 32 MiB: split it"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// program writes a program that prints its arguments and a Pod.
func program(t *testing.T, directory, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRendered(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{
		"k/kustomization.yaml": "resources: []",
		"k/more.yaml":          "no: kind",
		"c/Chart.yaml":         "name: c",
		"c/templates/a.yaml":   "{{ no YAML }}",
	}))
	shell, err := os.Readlink("/bin/sh")
	if err != nil || shell == "" {
		t.Skip("there is no shell")
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if _, err := Objects(t.Context(), []string{"k"}, Options{}); err == nil ||
		err.Error() != "k: the directory is a kustomization: install kustomize or kubectl, or render it yourself" {
		t.Errorf("without a program: %v", err)
	}
	program(t, bin, "kubectl", `echo '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "'"$1-$2"'"}}'`)
	program(t, bin, "helm", `echo '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "'"$1-$2"'"}}'`)
	got, err := Objects(t.Context(), []string{"."}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod template-./c", "Pod kustomize-./k"}, namesOf(got)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	program(t, bin, "helm", "echo broken >&2; exit 3")
	if _, err := Objects(t.Context(), []string{"c"}, Options{}); err == nil ||
		!strings.HasSuffix(err.Error(), "helm template ./c: exit status 3\nbroken") {
		t.Errorf("a program that fails: %v", err)
	}
}

func TestPositions(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{
		"a.yaml": "# a\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  spec:\n    containers:\n" +
			"    - {name: a}\n    - name: b\n      args: [x,\n        y]\n",
	}))
	objects, err := Objects(t.Context(), []string{"a.yaml"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"":                           "a.yaml:6:3",
		"spec.containers[0]":         "a.yaml:10:7",
		"spec.containers[0].name":    "a.yaml:10:8",
		"spec.containers[1].args[1]": "a.yaml:13:9",
		"spec.missing":               "a.yaml:8:3",
		"spec.containers[7].name":    "a.yaml:9:5",
		"missing[x].y":               "a.yaml:6:3",
	}
	for field, want := range tests {
		if got := objects[0].At(field).String(); got != want {
			t.Errorf("%q is at %s, want %s", field, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	type spec struct {
		Replicas   int `json:"replicas"`
		Containers []struct {
			Name string `json:"name"`
		} `json:"containers"`
	}
	type deployment struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   any    `json:"metadata"`
		Spec       spec   `json:"spec"`
	}
	tests := map[string]struct{ text, want string }{
		"valid": {text: "spec: {replicas: 1}"},
		"unknown fields": {
			text: "spec:\n  replica: 1\n  containers:\n  - image: x",
			want: "a.yaml:6:5: spec.containers[0].image: Deployment has no such field: correct or remove it\n" +
				"a.yaml:4:3: spec.replica: Deployment has no such field: correct or remove it",
		},
		"another type": {
			text: "spec:\n  containers:\n  - name: [a]",
			want: "a.yaml:5:5: spec.containers[0].name: got an array, want a string",
		},
		"a wrong number": {text: "spec: {replicas: many}", want: "a.yaml:3:8: spec.replicas: got a string, want a number"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(writeFiles(t, map[string]string{"a.yaml": "apiVersion: apps/v1\nkind: Deployment\n" + tt.text}))
			objects, err := Objects(t.Context(), []string{"a.yaml"}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := objects[0].Decode(&deployment{}); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// FuzzObjects checks that every input gives objects or one located error.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		pod, "a: &a [*a]", "{\"a\": 1, \"a\": 2}", "\t", "---\n---\n", "apiVersion: v1\nkind: List\nitems: [{}]",
		"? [a]\n: b", "<<: *x", "!!binary x", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := Objects(context.Background(), []string{"-"}, Options{Stdin: bytes.NewReader(text)})
		var located *Error
		switch {
		case err != nil && !errors.As(err, &located):
			t.Fatalf("an error without a position: %v", err)
		case err != nil && (located.Line < 1 || located.Column < 1 || strings.Contains(located.Text, "\n")):
			t.Fatalf("not one line with a position: %q", err)
		}
		for i := range objects {
			_ = objects[i].At("metadata.name")
			_ = objects[i].Decode(&Metadata{})
		}
	})
}
