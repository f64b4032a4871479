package main

import (
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// packagesIn returns a table of the packages below folders, with the first sentence of
// each package comment. One package per plugin would hide the others: they are left out.
func packagesIn(root fs.FS, folders ...string) (string, error) {
	var rows strings.Builder
	for _, folder := range folders {
		err := fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if entry.Name() == "testdata" || path.Dir(name) == "internal/plugins" {
				return fs.SkipDir
			}
			sentence, err := packageSentence(root, name)
			if sentence != "" {
				fmt.Fprintf(&rows, "| `%s` | %s |\n", name, cell(sentence))
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return "| package | purpose |\n|---|---|\n" + rows.String(), nil
}

// packageSentence returns what the package comment says after "Package name". It is
// empty for a folder without Go files.
func packageSentence(root fs.FS, folder string) (string, error) {
	files, err := fs.Glob(root, folder+"/*.go")
	if err != nil || len(files) == 0 {
		return "", err
	}
	for _, name := range files {
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return "", err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return "", err
		}
		if file.Doc != nil {
			text := new(doc.Package).Synopsis(file.Doc.Text())
			return strings.TrimPrefix(text, "Package "+file.Name.Name+" "), nil
		}
	}
	return "", fmt.Errorf("package %s has no comment", folder)
}
