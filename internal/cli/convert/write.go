package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// outputFile is a file of the result.
type outputFile struct {
	name string
	text []byte
}

func (r *result) files() ([]outputFile, error) {
	out := make([]outputFile, 0, len(r.Outputs))
	for _, o := range r.Outputs {
		text, err := o.YAML()
		if err != nil {
			return nil, err
		}
		out = append(out, outputFile{name: fileName(o), text: text})
	}
	return out, nil
}

// testsDirectory has the tests, because API servers do not know their kind.
const testsDirectory = "tests"

// tests returns the files of the PolicyTests. Assertions about the same policies share one.
func (r *result) tests() ([]outputFile, error) {
	if r.verified == nil {
		return nil, nil
	}
	byName := map[string]*v1alpha1.PolicyTest{}
	var names []string
	for _, t := range r.verified.Tests {
		name := strings.Join(t.Policies, "-")
		test := byName[name]
		if test == nil {
			test = &v1alpha1.PolicyTest{
				TypeMeta:   t.TypeMeta,
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Policies:   t.Policies,
			}
			for _, p := range t.Policies {
				test.Files = append(test.Files, "../"+p+".yaml")
			}
			byName[name], names = test, append(names, name)
		}
		c := t.Cases[0]
		for n := 2; slices.ContainsFunc(
			test.Cases,
			func(other v1alpha1.Case) bool { return other.Name == c.Name },
		); n++ {
			c.Name = fmt.Sprintf("%s (%d)", t.Cases[0].Name, n)
		}
		test.Cases = append(test.Cases, c)
	}
	var out []outputFile
	for _, name := range names {
		text, err := conversion.Encode(byName[name])
		if err != nil {
			return nil, err
		}
		out = append(out, outputFile{name: filepath.Join(testsDirectory, name+".yaml"), text: text})
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
func (c *convertCommand) write(r *result) error {
	files, err := r.files()
	if err != nil {
		return err
	}
	report, reportTo := r.report(), c.ErrOut
	if c.directory == "" {
		err = c.print(files)
	} else {
		var tests []outputFile
		if tests, err = r.tests(); err == nil {
			err = writeDirectory(c.directory, append(files, tests...))
		}
		reportTo = c.Out
	}
	if err != nil {
		return err
	}
	if err := c.printReport(reportTo, report, r.audited); err != nil {
		return err
	}
	if report.LeftOut > 0 || r.verified.HasFindings() || r.compared.HasFindings() {
		return &output.FindingsError{}
	}
	return nil
}

func (c *convertCommand) print(files []outputFile) error {
	var out bytes.Buffer
	for i, f := range files {
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(f.text)
	}
	if err := output.WriteYAML(c.Out, out.Bytes()); err != nil {
		return fmt.Errorf("writing the policies: %w", err)
	}
	return nil
}

// writeDirectory writes all files, or none: it renames a temporary directory.
func writeDirectory(path string, files []outputFile) (err error) {
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
		if !filepath.IsLocal(f.name) {
			return fmt.Errorf("the name %q is no name of a file: rename the policy", f.name)
		}
		path := filepath.Join(temporary, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // manifests are not secret
			return fmt.Errorf("writing the policies: %w", err)
		}
		if err := os.WriteFile(path, f.text, 0o644); err != nil { //nolint:gosec // manifests are not secret
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
