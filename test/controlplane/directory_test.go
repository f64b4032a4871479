package controlplane

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNewDirectoryRemovesOnlyWhatIsAbandoned(t *testing.T) {
	parent := t.TempDir()
	abandoned, used := mustDirectory(t, parent), mustDirectory(t, parent)
	strange := filepath.Join(parent, "ostiary-controlplane-of-nobody")
	if err := os.Mkdir(strange, 0o700); err != nil {
		t.Fatal(err)
	}
	abandoned.lock.Close() // as the system does when the owner is killed
	mine := mustDirectory(t, parent)
	for dir, want := range map[string]bool{abandoned.path: false, used.path: true, strange: true, mine.path: true} {
		if _, err := os.Stat(dir); os.IsNotExist(err) == want {
			t.Errorf("%s: %v, want it to be there: %v", dir, err, want)
		}
	}
}

func mustDirectory(t *testing.T, parent string) *directory {
	t.Helper()
	d, err := newDirectory(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.remove() })
	return d
}
