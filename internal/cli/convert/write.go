package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/convert/conversion"
	"github.com/ostiary/ostiary/internal/cli/output"
)

// file is a file of the result.
type file struct {
	name string
	text []byte
}

func (r *result) files() ([]file, error) {
	out := make([]file, 0, len(r.outputs))
	for _, o := range r.outputs {
		text, err := o.YAML()
		if err != nil {
			return nil, err
		}
		out = append(out, file{name: fileName(o), text: text})
	}
	return out, nil
}

// fileName is the name of a policy, and for other objects begins with the kind. A name
// of Kubernetes has no separator of paths.
func fileName(o *conversion.Output) string {
	name := o.Object.GetName() + ".yaml"
	if o.Policy() != nil {
		return name
	}
	if namespace := o.Object.GetNamespace(); namespace != "" {
		name = namespace + "-" + name
	}
	return strings.ToLower(o.Object.GetObjectKind().GroupVersionKind().Kind) + "-" + name
}

// write writes policies and the report.
func (c *command) write(r *result) error {
	files, err := r.files()
	if err != nil {
		return err
	}
	report, reportTo := r.report(), c.ErrOut
	if c.directory == "" {
		err = c.print(files)
	} else {
		err, reportTo = writeDirectory(c.directory, files), c.Out
	}
	if err != nil {
		return err
	}
	if err := c.printReport(reportTo, report, r.audited); err != nil {
		return err
	}
	if report.LeftOut > 0 {
		return &output.FindingsError{}
	}
	return nil
}

func (c *command) print(files []file) error {
	var out bytes.Buffer
	for i, f := range files {
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(f.text)
	}
	if _, err := c.Out.Write(out.Bytes()); err != nil {
		return fmt.Errorf("writing the policies: %w", err)
	}
	return nil
}

// writeDirectory writes all files, or none: it renames a temporary directory.
func writeDirectory(path string, files []file) (err error) {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("reading the directory %s: %w", path, err)
	case len(entries) > 0:
		return fmt.Errorf("the directory %s is not empty: name a new one with -o, or remove it", path)
	}
	path = filepath.Clean(path)
	temporary, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("writing the policies: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	for _, f := range files {
		if !filepath.IsLocal(f.name) || strings.ContainsRune(f.name, filepath.Separator) {
			return fmt.Errorf("the name %q is no name of a file: rename the policy", f.name)
		}
		if err := os.WriteFile(filepath.Join(temporary, f.name), f.text, 0o644); err != nil { //nolint:gosec // manifests are not secret
			return fmt.Errorf("writing the policies: %w", err)
		}
	}
	if err := os.Chmod(temporary, 0o755); err != nil { //nolint:gosec // manifests are not secret
		return fmt.Errorf("writing the policies: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("writing the policies: %w", err)
	}
	return nil
}
