package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// TestDocumentedDifferences holds docs/migration/differences.md to the table: each row
// stands in both, and a difference that no request can show has a test that
// exists.
func TestDocumentedDifferences(t *testing.T) {
	content, err := os.ReadFile(root + "/docs/migration/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := rows(string(content))
	known := sets.New[string]()
	tests := testNames(t)
	for _, d := range knownDifferences() {
		known.Insert(d.row)
		switch {
		case d.row == "" || d.name == "":
			t.Errorf("%+v has no name or no row", d)
		case documented[d.row] != d.versions.String():
			t.Errorf("docs/migration/differences.md has no row %q with the versions %q for the known difference %s", d.row, d.versions, d.name)
		case d.normalise == nil && d.refusal == nil && !tests.Has(d.test):
			t.Errorf("the known difference %s is pinned by %q, which is no test", d.name, d.test)
		}
	}
	for row := range documented {
		if !known.Has(row) {
			t.Errorf("docs/migration/differences.md has a row %q that no known difference stands for", row)
		}
	}
}

// rows are the first columns of all tables, with their second ones.
func rows(markdown string) map[string]string {
	out := map[string]string{}
	header := true
	for line := range strings.Lines(markdown) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 3 || strings.TrimSpace(cells[0]) != "":
			header = true // the next row begins a table
		case strings.HasPrefix(strings.TrimSpace(cells[1]), "---"):
			header = false
		case !header:
			out[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	return out
}

// testNames are those of all tests of the repository.
func testNames(t *testing.T) sets.Set[string] {
	t.Helper()
	out := sets.New[string]()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				out.Insert(f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
