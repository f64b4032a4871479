package load

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Root is a folder that bounds the files that another file can name: those below it that are
// reached without a link, a name that begins with a dot, or anything else than folders. It
// is absolute, and "" for no bound.
type Root string

// NewRoot returns a folder as a Root.
func NewRoot(folder string) (Root, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("finding the folder %s: %w", folder, err)
	}
	return Root(absolute), nil
}

// Contains reports whether a path is below the folder, or the folder.
func (r Root) Contains(path string) bool {
	_, ok := r.local(path)
	return ok
}

// local returns a path relative to the folder.
func (r Root) local(path string) (string, bool) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	name, err := filepath.Rel(string(r), absolute)
	return name, err == nil && filepath.IsLocal(name)
}

// find opens the folder, and returns the name of a path in it and what is there; nil if
// nothing is.
func (r Root) find(path string) (*os.Root, string, fs.FileInfo, error) {
	name, ok := r.local(path)
	if !ok {
		return nil, "", nil, refusal(path, "outside of the folder %s, and a file can name only files in it: move the file, or name a wider folder with --root", r)
	}
	elements := strings.Split(name, string(filepath.Separator))
	for _, element := range elements {
		if strings.HasPrefix(element, ".") && element != "." {
			return nil, "", nil, refusal(path, "the name %q begins with a dot, and a file cannot name hidden files: rename it", element)
		}
	}
	root, err := os.OpenRoot(string(r))
	if err != nil {
		return nil, "", nil, fmt.Errorf("opening the folder %s: %w", r, err)
	}
	info, err := follow(root, path, elements)
	if err != nil {
		return nil, "", nil, errors.Join(err, root.Close())
	}
	return root, name, info, nil
}

// follow returns what is at the elements of a path; nil if nothing is. It follows no links.
func follow(root *os.Root, path string, elements []string) (info fs.FileInfo, err error) {
	for at := range elements {
		prefix := filepath.Join(elements[:at+1]...)
		info, err = root.Lstat(prefix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil //nolint:nilnil // what does not exist is no error
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", path, err)
		case info.Mode()&fs.ModeSymlink != 0:
			return nil, refusal(path, "%s is a link: name the file or the folder itself", prefix)
		}
	}
	return info, nil
}

func refusal(path, format string, args ...any) error {
	return &Error{Position: Position{File: path}, Text: fmt.Sprintf(format, args...)}
}

// stat returns what is at a path.
func (r Root) stat(path string) (fs.FileInfo, error) {
	root, _, info, err := r.find(path)
	if err != nil {
		return nil, err
	}
	if info == nil {
		err = &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	return info, errors.Join(err, root.Close())
}

// open opens a regular file.
func (r Root) open(path string) (*os.File, error) {
	root, name, info, err := r.find(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // nothing was written
	switch {
	case info == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case !info.Mode().IsRegular():
		return nil, refusal(path, "not a regular file")
	}
	return root.Open(name) //nolint:wrapcheck // it names the file
}

// ReadFile reads a regular file of one document. The error is fs.ErrNotExist if there is none.
func (r Root) ReadFile(path string) ([]byte, error) {
	f, err := r.open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = refusal(path, "larger than %d MiB", maxDocument>>20)
	}
	return text, err
}

// WriteFile creates or replaces a regular file, and creates its folders. It replaces the
// file at once, and keeps its permissions.
func (r Root) WriteFile(path string, text []byte) (err error) {
	root, name, info, err := r.find(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	mode := fs.FileMode(0o600)
	switch {
	case info == nil:
		err = root.MkdirAll(filepath.Dir(name), 0o750)
	case !info.Mode().IsRegular():
		err = refusal(path, "not a regular file")
	default:
		mode = info.Mode().Perm()
	}
	if err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"-"+rand.Text())
	if err := writeNew(root, temporary, mode, text); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return root.Rename(temporary, name) //nolint:wrapcheck // it names the file
}

func writeNew(root *os.Root, name string, mode fs.FileMode, text []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
