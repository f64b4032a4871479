package load

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostileTree makes a folder beside a secret, with links and a pipe. It returns the folder.
func hostileTree(t *testing.T) string {
	t.Helper()
	directory := writeFiles(t, map[string]string{
		"secret.yaml": pod, "root/a.yaml": pod, "root/.hidden/a.yaml": pod,
		"root/sub/b.yaml": strings.ReplaceAll(pod, "web", "b"), "outside/c.yaml": pod,
	})
	root := filepath.Join(directory, "root")
	for name, target := range map[string]string{
		"link.yaml":  "../secret.yaml",
		"inner.yaml": "a.yaml",
		"zero.yaml":  "/dev/zero",
		"folder":     "../outside",
		"hidden":     ".hidden",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestRoot(t *testing.T) {
	folder := hostileTree(t)
	t.Chdir(folder)
	root, err := NewRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	const outside = ": outside of the folder ROOT, and a file can name only files in it: move the file, or name a wider folder with --root"
	tests := map[string]struct {
		path string
		want string // the error; empty if the file can be read
	}{
		"a file":                 {path: "sub/../a.yaml"},
		"an absolute path":       {path: filepath.Join(folder, "a.yaml")},
		"a folder":               {path: "sub", want: "sub: not a regular file"},
		"a file above":           {path: "../secret.yaml", want: "../secret.yaml" + outside},
		"a device":               {path: "/dev/zero", want: "/dev/zero" + outside},
		"a pipe":                 {path: "pipe.yaml", want: "pipe.yaml: not a regular file"},
		"a link out":             {path: "link.yaml", want: "link.yaml: link.yaml is a link: name the file or the folder itself"},
		"a link to a device":     {path: "zero.yaml", want: "zero.yaml: zero.yaml is a link: name the file or the folder itself"},
		"a link within":          {path: "inner.yaml", want: "inner.yaml: inner.yaml is a link: name the file or the folder itself"},
		"a linked folder":        {path: "folder/c.yaml", want: "folder/c.yaml: folder is a link: name the file or the folder itself"},
		"a link to hidden files": {path: "hidden/a.yaml", want: "hidden/a.yaml: hidden is a link: name the file or the folder itself"},
		"a hidden folder": {
			path: ".hidden/a.yaml",
			want: `.hidden/a.yaml: the name ".hidden" begins with a dot, and a file cannot name hidden files: rename it`,
		},
		"a new hidden folder": {
			path: "new/.github/a.yaml",
			want: `new/.github/a.yaml: the name ".github" begins with a dot, and a file cannot name hidden files: rename it`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := root.ReadFile(tt.path)
			if tt.want == "" {
				if err != nil || string(text) != pod {
					t.Errorf("read %q, %v", text, err)
				}
				return
			}
			want := strings.ReplaceAll(tt.want, "ROOT", folder)
			if err == nil || err.Error() != want {
				t.Errorf("reading: %v, want %s", err, want)
			}
			if err := root.WriteFile(tt.path, []byte("new")); err == nil || err.Error() != want {
				t.Errorf("writing: %v, want %s", err, want)
			}
			if _, err := Objects(t.Context(), []string{tt.path}, Options{Root: root}); name != "a folder" && (err == nil ||
				!strings.HasPrefix(err.Error(), want)) {
				t.Errorf("loading: %v, want %s", err, want)
			}
		})
	}
	if _, err := root.ReadFile("none/a.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for name, want := range map[string]string{"../secret.yaml": pod, ".hidden/a.yaml": pod, "../outside/c.yaml": pod} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s has changed: %q, %v", name, got, err)
		}
	}
	got, err := Objects(t.Context(), []string{"."}, Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod shop/web", "Pod shop/b"}, namesOf(got)); diff != "" {
		t.Errorf("objects of the folder (-want +got):\n%s", diff)
	}
}

func TestRootWritesFiles(t *testing.T) {
	folder := t.TempDir()
	root, err := NewRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "new", "a.yaml")
	for _, text := range []string{"first", "second"} {
		if err := root.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
		info, err := os.Stat(path)
		if want := map[string]fs.FileMode{"first": 0o600, "second": 0o640}[text]; err != nil || info.Mode() != want {
			t.Errorf("mode %v, want %v", info.Mode(), want)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

func TestRootReadsAtMostOneDocument(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "large.yaml")
	if err := os.WriteFile(path, bytes.Repeat([]byte{' '}, maxDocument+1), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := NewRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := root.ReadFile(path); err == nil || err.Error() != path+": larger than 32 MiB" {
		t.Errorf("got %v", err)
	}
}
