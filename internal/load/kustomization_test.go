package load

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeKubectl makes a program that prints its arguments and a part of its environment.
func fakeKubectl(t *testing.T) {
	t.Helper()
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for _, name := range []string{"GIT_ALLOW_PROTOCOL", "HTTPS_PROXY"} {
		t.Setenv(name, "")
	}
	program(t, bin, "kubectl", `echo '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "'"$*, $GIT_ALLOW_PROTOCOL, $HTTPS_PROXY"'"}}'`)
	program(t, bin, "helm", `echo '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "'"$*"'"}}'`)
}

func TestKustomizations(t *testing.T) {
	const remote = ` is remote: render the kustomization yourself and name its output, or use --allow-remote of test, ` +
		`lint, eval, explain or replay`
	const plugin = "the configuration of a plugin can name remote files: render the kustomization yourself and name its " +
		"output, or use --allow-remote of test, lint, eval, explain or replay"
	tests := map[string]struct {
		kustomization string
		want          string // the error
		wantInRoot    string // the error if paths are bound; want if it is empty
	}{
		"files, folders and texts": {
			kustomization: "namePrefix: 'a:'\ncommonAnnotations: {a: 'https://example.com'}\nresources: [a.yaml, ./base]\n" +
				"configMapGenerator: [{name: a, literals: ['URL=https://example.com'], files: [a=a.yaml]}]\n" +
				"patches: [{path: a.yaml}, {patch: '{a: \"https://example.com\"}'}]\n",
		},
		"a file with HTTP": {
			kustomization: "resources:\n- HTTPS://example.com/a.yaml\n",
			want:          `k/kustomization.yaml:2:3: resources[0]: "HTTPS://example.com/a.yaml"` + remote,
		},
		"a repository": {
			kustomization: "resources: ['git@example.com:a/b']",
			want:          `k/kustomization.yaml:1:13: resources[0]: "git@example.com:a/b"` + remote,
		},
		"a repository by its host": {
			kustomization: "resources: [GitHub.com/a/b]",
			want:          `k/kustomization.yaml:1:13: resources[0]: "GitHub.com/a/b"` + remote,
		},
		"a component": {
			kustomization: "components: ['https://example.com/a?ref=main']",
			want:          `k/kustomization.yaml:1:14: components[0]: "https://example.com/a?ref=main"` + remote,
		},
		"bases, in capitals": {
			kustomization: "Bases: ['ssh://example.com/a']",
			want:          `k/kustomization.yaml:1:9: Bases[0]: "ssh://example.com/a"` + remote,
		},
		"a patch": {
			kustomization: "patches: [{path: 'https://example.com/a'}]",
			want:          `k/kustomization.yaml:1:12: patches[0].path: "https://example.com/a"` + remote,
		},
		"a file of a ConfigMap": {
			kustomization: "configMapGenerator: [{name: a, files: ['a=https://example.com/a']}]",
			want:          `k/kustomization.yaml:1:40: configMapGenerator[0].files[0]: "a=https://example.com/a"` + remote,
		},
		"a schema": {
			kustomization: "openapi: {path: 'http://example.com/a'}",
			want:          `k/kustomization.yaml:1:11: openapi.path: "http://example.com/a"` + remote,
		},
		"a plugin": {
			kustomization: "generators: [a.yaml]",
			want:          "k/kustomization.yaml:1:1: generators: " + plugin,
		},
		"a kustomization within": {
			kustomization: "resources: [remote]",
			want:          `k/remote/kustomization.yml:1:13: resources[0]: "https://example.com/a"` + remote,
		},
		"a cycle": {kustomization: "resources: [../k]"},
		"a folder outside": {
			kustomization: "resources: [../other]",
			wantInRoot: "k/kustomization.yaml:1:13: resources[0]: other: outside of the folder ROOT, and a file can name " +
				"only files in it: move the file, or name a wider folder with --root",
		},
		"no YAML": {
			kustomization: "a: [",
			want:          "k/kustomization.yaml:2:1: invalid YAML: did not find expected node content",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fakeKubectl(t)
			t.Chdir(writeFiles(t, map[string]string{
				"k/kustomization.yaml": tt.kustomization, "k/a.yaml": pod, "k/base/Kustomization": "resources: []",
				"k/remote/kustomization.yml":          "resources: ['https://example.com/a']",
				"k/GitHub.com/a/b/kustomization.yaml": "", "other/kustomization.yaml": "",
			}))
			root, err := NewRoot("k")
			if err != nil {
				t.Fatal(err)
			}
			check := func(o Options, want string) {
				t.Helper()
				got, err := Objects(t.Context(), []string{"k"}, o)
				if want == "" {
					if diff := cmp.Diff([]string{"Pod kustomize ./k, none, " + noProxy}, namesOf(got)); err != nil || diff != "" {
						t.Errorf("error %v, objects (-want +got):\n%s", err, diff)
					}
				} else if want = strings.ReplaceAll(want, "ROOT", string(root)); err == nil || err.Error() != want {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
			check(Options{}, tt.want)
			if tt.wantInRoot == "" {
				tt.wantInRoot = tt.want
			}
			if name == "a cycle" {
				root = Root(filepath.Dir(string(root)))
			}
			check(Options{Root: root}, tt.wantInRoot)
			if got, err := Objects(t.Context(), []string{"k"}, Options{AllowRemote: true}); name != "no YAML" && (err != nil ||
				len(got) != 1 || got[0].Metadata.Name != "kustomize ./k, , ") {
				t.Errorf("with remote files: %v, %v", namesOf(got), err)
			}
		})
	}
}

// TestRenderedPathIsNoFlag renders folders with the names of a flag and of a host.
func TestRenderedPathIsNoFlag(t *testing.T) {
	fakeKubectl(t)
	t.Chdir(writeFiles(t, map[string]string{
		"--output=victim/kustomization.yaml": "",
		"--post-renderer=x/Chart.yaml":       "",
		"github.com/a/b/kustomization.yaml":  "",
	}))
	for path, want := range map[string]string{
		"--output=victim":   "Pod kustomize ./--output=victim, none, " + noProxy,
		"--post-renderer=x": "Pod template ./--post-renderer=x",
		"github.com/a/b":    "Pod kustomize ./github.com/a/b, none, " + noProxy,
	} {
		got, err := Objects(t.Context(), []string{path}, Options{})
		if diff := cmp.Diff([]string{want}, namesOf(got)); err != nil || diff != "" {
			t.Errorf("%s: error %v, objects (-want +got):\n%s", path, err, diff)
		}
	}
}

func TestChartsWithLinks(t *testing.T) {
	fakeKubectl(t)
	t.Chdir(writeFiles(t, map[string]string{"c/Chart.yaml": "", "c/files/a": "x", "secret": "x"}))
	if err := os.Symlink("../files", "c/files/within"); err != nil {
		t.Fatal(err)
	}
	if got, err := Objects(t.Context(), []string{"c"}, Options{}); err != nil || len(got) != 1 {
		t.Errorf("with a link within the chart: %v, %v", namesOf(got), err)
	}
	if err := os.Symlink("../../secret", "c/files/b"); err != nil {
		t.Fatal(err)
	}
	const want = "c/files/b: the link leads out of the chart: replace it with the file"
	if _, err := Objects(t.Context(), []string{"c"}, Options{}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
