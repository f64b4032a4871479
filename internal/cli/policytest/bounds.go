package policytest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ostiary/ostiary/internal/cli/load"
)

// bounds are the folders in which a test can name files.
type bounds struct {
	files       load.Root // of policies and objects
	golden      load.Root // of objects after mutations
	allowRemote bool
}

// boundsOf returns the bounds of the test in a file that was found in paths.
func boundsOf(file string, paths []string, o LoadOptions) (out bounds, err error) {
	out.allowRemote = o.AllowRemote
	if o.Root != "" {
		if info, err := os.Stat(o.Root); err != nil || !info.IsDir() {
			return out, fmt.Errorf("invalid argument %q for --root: want a folder", o.Root)
		}
		out.files, err = load.NewRoot(o.Root)
		out.golden = out.files
		return out, err
	}
	if out.golden, err = load.NewRoot(filepath.Dir(file)); err != nil {
		return out, err
	}
	for _, folder := range folders(paths) {
		if out.files, err = load.NewRoot(folder); err != nil || out.files.Contains(file) {
			return out, err
		}
	}
	out.files = out.golden
	return out, nil
}

// folders returns the folders that can bound tests: the repository of the working directory,
// that directory, and the folders that paths name.
func folders(paths []string) (out []string) {
	if current, err := os.Getwd(); err == nil {
		if repository := repositoryOf(current); isProject(repository) {
			out = append(out, repository)
		} else if isProject(current) {
			out = append(out, current)
		}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			path = filepath.Dir(path)
		}
		out = append(out, path)
	}
	return out
}

// repositoryOf returns the nearest folder above another one, or itself, that git uses; "" if
// there is none.
func repositoryOf(folder string) string {
	for {
		if _, err := os.Lstat(filepath.Join(folder, ".git")); err == nil {
			return folder
		}
		above := filepath.Dir(folder)
		if above == folder {
			return ""
		}
		folder = above
	}
}

// isProject reports whether a folder can bound tests: it is neither that of all files, nor
// that of all files of the user.
func isProject(folder string) bool {
	home, _ := os.UserHomeDir() // "" if there is none
	return folder != "" && folder != filepath.Dir(folder) && !sameFolder(folder, home)
}

func sameFolder(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
