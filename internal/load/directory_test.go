package load

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Links to files of the directory are read, once, and those out of it are not. Large files are not
// read.
func TestFilesOfDirectories(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{
		"a.yaml":       pod,
		".data/b.yaml": strings.ReplaceAll(pod, "web", "hidden"),
		"large.yaml":   strings.Repeat("#", 1<<10+1),
	}))
	for name, target := range map[string]string{
		"hidden.yaml": ".data/b.yaml",
		"same.yaml":   "a.yaml",
		"folder.yaml": ".data",
		"loop.yaml":   "loop.yaml",
		"lost.yaml":   "absent.yaml",
		".#lock.yaml": "user@host.1234",
		"out.yaml":    "/etc/hostname",
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	var skipped []string
	objects, err := Objects(t.Context(), []string{"."},
		Options{MaxFile: 1 << 10, Skip: func(err error) { skipped = append(skipped, err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod shop/web", "Pod shop/hidden"}, namesOf(objects)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	const linked = ": the link leads to no file of the directory: replace it with the file, or remove it"
	want := []string{
		"large.yaml: larger than 1 KiB, as no policy is: split it, or name the file itself",
		"loop.yaml" + linked, "lost.yaml" + linked, "out.yaml" + linked,
	}
	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if _, err := Objects(t.Context(), []string{"large.yaml"}, Options{MaxFile: 1 << 10}); err != nil {
		t.Errorf("a large file that the path names: %v", err)
	}
}
