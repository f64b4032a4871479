package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Every reason of a condition and of an event has a heading that says what to do.
func TestReasonsAreDocumented(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	anchors := headings(read(t, root, "docs/troubleshooting.md"))
	found := reasons(t, root)
	if len(found) < 30 {
		t.Errorf("found %d reasons in the code, want more: %v", len(found), found)
	}
	for reason, where := range found {
		if !anchors["#"+strings.ToLower(reason)] {
			t.Errorf("%s: docs/troubleshooting.md has no heading %s", where, reason)
		}
	}
}

// reasons are the texts of constants that are named so, of the constants of
// events, and what functions return beside the type of an event.
func reasons(t *testing.T, root fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(root, "controllers", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, root, name), 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range reasonsOf(n) {
				out[text] = name
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func reasonsOf(n ast.Node) (out []string) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if (strings.HasPrefix(name.Name, "Reason") || strings.HasPrefix(name.Name, "event")) && i < len(n.Values) {
				out = append(out, literal(n.Values[i]))
			}
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 2 {
			if kind, ok := n.Results[1].(*ast.SelectorExpr); ok && strings.HasPrefix(kind.Sel.Name, "EventType") {
				out = append(out, literal(n.Results[0]))
			}
		}
	}
	return withoutEmpty(out)
}

func withoutEmpty(texts []string) (out []string) {
	for _, text := range texts {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}
