package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// sourcePackage is a package as it is written: its files in the order of their names.
type sourcePackage struct {
	folder    string
	positions *token.FileSet
	files     []*ast.File
	lines     int
}

// parsePackage parses the files of a folder. A folder without hand-written code has none.
func parsePackage(root fs.FS, folder string) (*sourcePackage, error) {
	names, err := fs.Glob(root, path.Join(folder, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s: %w", folder, err)
	}
	p := &sourcePackage{folder: folder, positions: token.NewFileSet()}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		file, err := parser.ParseFile(p.positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", name, err)
		}
		if !ast.IsGenerated(file) {
			p.files = append(p.files, file)
			p.lines += bytes.Count(text, []byte("\n"))
		}
	}
	return p, nil
}

func (p *sourcePackage) measure() measures {
	m := measures{files: len(p.files), lines: p.lines}
	for _, file := range p.files {
		m.statements += countStatements(file)
	}
	found := p.references()
	m.references = len(found)
	position := map[string]int{}
	for i, name := range orderFiles(p.fileNames(), found) {
		position[name] = i
	}
	for _, r := range found {
		if position[r.from] < position[r.to] {
			m.upwardReferences = append(m.upwardReferences, fmt.Sprintf("%s -> %s: %s", r.from, r.to, r.name))
		}
	}
	return m
}

func (p *sourcePackage) fileNames() []string {
	names := make([]string, len(p.files))
	for i, file := range p.files {
		names[i] = p.positions.File(file.FileStart).Name()
	}
	return names
}

// countStatements counts the statements of a file, without the blocks that only group them.
func countStatements(file *ast.File) (count int) {
	ast.Inspect(file, func(n ast.Node) bool {
		if _, isStatement := n.(ast.Stmt); isStatement {
			if _, isBlock := n.(*ast.BlockStmt); !isBlock {
				count++
			}
		}
		return true
	})
	return count
}

// reference is a name that one file uses and another one declares.
type reference struct{ from, to, name string }

// references returns the references between the files, sorted. Imported packages are empty
// for the type checker: the names of the package itself do not need them, and the command
// then measures a tree that does not compile too.
func (p *sourcePackage) references() []reference {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: emptyImporter{}, Error: func(error) {}}
	_, _ = config.Check(p.folder, p.positions, p.files, info) // Error has the errors
	seen := map[reference]bool{}
	var out []reference
	for ident, object := range info.Uses {
		if !isDeclaration(object) {
			continue
		}
		r := reference{
			from: p.positions.Position(ident.Pos()).Filename,
			to:   p.positions.Position(object.Pos()).Filename,
			name: object.Name(),
		}
		if r.to != "" && r.from != r.to && !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b reference) int {
		return slices.Compare([]string{a.from, a.to, a.name}, []string{b.from, b.to, b.name})
	})
	return out
}

// isDeclaration reports whether an object is declared at package level, or is a method.
func isDeclaration(object types.Object) bool {
	if f, ok := object.(*types.Func); ok && f.Signature().Recv() != nil {
		return true
	}
	return object.Pkg() != nil && object.Parent() == object.Pkg().Scope()
}

// emptyImporter implements types.Importer.
type emptyImporter struct{}

// Import implements types.Importer.
func (emptyImporter) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}
