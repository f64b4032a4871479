package policytest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// makeFiles makes files of tests in a new folder, which it returns.
func makeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestFilesOutsideOfTheRoot has tests that name files which they may not read or write.
func TestFilesOutsideOfTheRoot(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Pod\nmetadata: {name: s3cret}\n"
	tests := map[string]struct {
		objectFile string
		want       string // a part of the error
	}{
		"a hidden file above":      {objectFile: "../../.kube/config.yaml", want: "outside of the folder"},
		"a file above":             {objectFile: "../secret.yaml", want: "outside of the folder"},
		"an absolute path":         {objectFile: "//dev/zero.yaml", want: "dev/zero.yaml does not exist"}, // relative to the test
		"a name without extension": {objectFile: "../Makefile", want: "expect.objectFile: the name needs the extension .yaml, .yml or .json"},
		"a hidden folder":          {objectFile: ".github/workflows/a.yaml", want: `the name ".github" begins with a dot`},
		"a link to a file":         {objectFile: "link.yaml", want: "link.yaml is a link"},
		"a link to a folder":       {objectFile: "folder/secret.yaml", want: "folder is a link"},
		"a link to a device":       {objectFile: "zero.yaml", want: "zero.yaml is a link"},
		"a folder with a name":     {objectFile: "sub.yaml", want: "sub.yaml: not a regular file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			folder := makeFiles(t, map[string]string{
				".kube/config.yaml": secret, "repository/secret.yaml": secret, "repository/Makefile": secret, "repository/tests/sub.yaml/a": "",
				"repository/tests/test.yaml": policies() + fmt.Sprintf(head, "mutate") + "- {name: c, object: " + pod + ", expect: {decision: Mutate, objectFile: '" + tt.objectFile + "'}}\n",
			})
			t.Chdir(filepath.Join(folder, "repository"))
			for link, target := range map[string]string{"link.yaml": "../secret.yaml", "folder": "..", "zero.yaml": "/dev/zero"} {
				if err := os.Symlink(target, filepath.Join("tests", link)); err != nil {
					t.Fatal(err)
				}
			}
			out, errOut, err := run(t, "", "tests/test.yaml")
			all := fmt.Sprint(out, errOut, err)
			if err == nil || !strings.Contains(all, tt.want) || strings.Contains(all, "s3cret") {
				t.Errorf("reading: got %s, want %s", all, tt.want)
			}
			if name == "an absolute path" {
				return
			}
			out, errOut, err = run(t, "", "tests/test.yaml", "--update")
			if all := fmt.Sprint(out, errOut, err); output.Status(err) != output.StatusError || !strings.Contains(all, tt.want) {
				t.Errorf("writing: got %s, want %s", all, tt.want)
			}
			for _, path := range []string{"../.kube/config.yaml", "secret.yaml", "Makefile"} {
				if text, err := os.ReadFile(path); err != nil || string(text) != secret {
					t.Errorf("%s has changed: %s, %v", path, text, err)
				}
			}
			if _, err := os.Lstat("tests/.github"); err == nil {
				t.Error("there is a hidden folder")
			}
		})
	}
}

// TestRootOfFiles runs a test that names a file above its folder.
func TestRootOfFiles(t *testing.T) {
	files := func(marker string) map[string]string {
		test := fmt.Sprintf(strings.Replace(head, "policies:", "files: [../policy.yaml]\npolicies:", 1), "allow") + "- {name: c, object: " + pod + ", expect: {decision: Allow}}\n"
		return map[string]string{"a/policy.yaml": policies(), "a/tests/test.yaml": test, "b/c/d": "", marker: ""}
	}
	tests := map[string]struct {
		marker, home string // home is the home directory
		in           string // the working directory
		args         []string
		wantRefused  bool
	}{
		"in the working directory":              {in: ".", args: []string{"a/tests"}},
		"in the repository":                     {marker: "a/.git", in: "a/tests"},
		"in the repository of another folder":   {marker: ".git", in: "b/c", args: []string{"../../a/tests"}},
		"in the folder that is named":           {in: "b", args: []string{"../a"}},
		"in the root":                           {in: "b", args: []string{"../a/tests", "--root", "../a"}},
		"outside of the working directory":      {in: "a/tests", wantRefused: true},
		"outside of the folder that is named":   {in: "b", args: []string{"../a/tests"}, wantRefused: true},
		"outside of the file that is named":     {in: "b", args: []string{"../a/tests/test.yaml"}, wantRefused: true},
		"outside of the repository":             {marker: "a/tests/.git", in: "a/tests", wantRefused: true},
		"outside of the root":                   {in: ".", args: []string{"a/tests", "--root", "a/tests"}, wantRefused: true},
		"in the home directory":                 {home: ".", in: ".", args: []string{"a/tests"}, wantRefused: true},
		"in a repository of the home":           {home: ".", marker: ".git", in: ".", args: []string{"a/tests"}, wantRefused: true},
		"in a folder of the home":               {home: ".", in: "a", args: []string{"tests"}},
		"in a folder of a home with a marker":   {home: ".", marker: ".git", in: "a", args: []string{"tests"}},
		"in a folder of the home that is named": {home: ".", in: ".", args: []string{"a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.marker == "" {
				tt.marker = "none"
			}
			folder := makeFiles(t, files(tt.marker))
			t.Setenv("HOME", filepath.Join(folder, "b"))
			if tt.home != "" {
				t.Setenv("HOME", filepath.Join(folder, tt.home))
			}
			t.Chdir(filepath.Join(folder, tt.in))
			out, errOut, err := run(t, "", tt.args...)
			refused := err != nil && strings.Contains(err.Error(), "outside of the folder") && strings.Contains(err.Error(), "--root")
			if refused != tt.wantRefused || !refused && err != nil {
				t.Errorf("%s%s%v", out, errOut, err)
			}
		})
	}
}

func TestInvalidRoot(t *testing.T) {
	t.Chdir(makeFiles(t, map[string]string{"test.yaml": policies() + fmt.Sprintf(head, "allow") + "- {name: c, object: " + pod + ", expect: {decision: Allow}}\n"}))
	const want = `invalid argument "none" for --root: want a folder`
	if _, _, err := run(t, "", "--root", "none"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestRemoteKustomization runs a test whose kustomization is remote.
func TestRemoteKustomization(t *testing.T) {
	t.Chdir(makeFiles(t, map[string]string{
		"k/kustomization.yaml": "resources: ['https://example.com/a.yaml']",
		"test.yaml":            strings.Replace(fmt.Sprintf(head, "a"), "policies:", "files: [k]\npolicies:", 1) + "- {name: c, object: " + pod + ", expect: {decision: Allow}}\n",
	}))
	if _, _, err := run(t, ""); err == nil || !strings.Contains(err.Error(), `k/kustomization.yaml:1:13: resources[0]: "https://example.com/a.yaml" is remote`) {
		t.Errorf("got %v", err)
	}
}
