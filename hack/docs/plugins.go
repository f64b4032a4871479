package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/ostiary/ostiary/internal/plugins"
)

const module = "github.com/ostiary/ostiary/"

// pages writes the configuration of each admission plugin into the section about it.
func pages(folder string) error {
	for _, d := range plugins.All() {
		table, err := configTable(os.DirFS("."), d.Config)
		if err != nil {
			return fmt.Errorf("the configuration of %s: %w", d.Name, err)
		}
		if table == "" {
			continue
		}
		name, err := pageOf(os.DirFS(folder), string(d.Name))
		if err != nil {
			return err
		}
		page := filepath.Join(folder, name)
		into := func(document []byte) (string, error) { return intoSection(string(document), string(d.Name), table) }
		if err := rewrite(page, page, into); err != nil {
			return err
		}
	}
	return nil
}

// pageOf returns the file name of the page with the section about a plugin. Several short plugins
// share a page.
func pageOf(folder fs.FS, plugin string) (string, error) {
	names, err := fs.Glob(folder, "*.md")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return "", err
		}
		if _, _, _, found := sectionOf(string(text), plugin); found {
			return name, nil
		}
	}
	return "", fmt.Errorf("no page has a heading %s: write a section about it", plugin)
}

// sectionOf returns the section about a plugin, with what stands before and after it: the whole
// page if the plugin is its title, otherwise the part up to the next plugin.
func sectionOf(page, plugin string) (before, section, after string, found bool) {
	if strings.HasPrefix(page, "# "+plugin+"\n") {
		return "", page, "", true
	}
	heading := "\n## " + plugin + "\n"
	before, rest, found := strings.Cut(page, heading)
	section, after, more := strings.Cut(rest, "\n## ")
	if more {
		after = "\n## " + after
	}
	return before, heading + section, after, found
}

// intoSection writes a table between the marks of the section about a plugin.
func intoSection(page, plugin, table string) (string, error) {
	before, section, after, found := sectionOf(page, plugin)
	if !found {
		return "", fmt.Errorf("it has no heading %s", plugin)
	}
	section, err := intoMarks(section, table)
	return before + section + after, err
}

// configTable returns a table of the fields of a configuration, or "" without fields.
func configTable(root fs.FS, config reflect.Type) (string, error) {
	if config == nil {
		return "", errors.New("name its type in the definition")
	}
	rows, err := configRows(root, config, "")
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return "| config | type | |\n|---|---|---|\n" + strings.Join(rows, ""), nil
}

func configRows(root fs.FS, config reflect.Type, prefix string) ([]string, error) {
	comments, err := commentsOf(root, config)
	if err != nil {
		return nil, err
	}
	var rows []string
	for i := range config.NumField() {
		f := config.Field(i)
		if !f.Anonymous && !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			more, err := configRows(root, f.Type, prefix)
			if err != nil {
				return nil, err
			}
			rows = append(rows, more...)
			continue
		}
		if name == "" || comments[f.Name] == "" {
			return nil, fmt.Errorf("%s.%s: give it a JSON tag and a comment: documents are made of them", config, f.Name)
		}
		kind, below, more := kindOf(f.Type)
		rows = append(rows, fmt.Sprintf("| `%s%s` | %s | %s |\n", prefix, name, kind, cell(text(comments[f.Name]))))
		if below != nil {
			inner, err := configRows(root, below, prefix+name+more+".")
			if err != nil {
				return nil, err
			}
			rows = append(rows, inner...)
		}
	}
	return rows, nil
}

// kindOf returns the readable type of a field, and the struct of this module in it.
func kindOf(t reflect.Type) (kind string, below reflect.Type, suffix string) {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		kind, below, _ = kindOf(t.Elem())
		return "list of " + plural(kind), below, "[]"
	case reflect.Map:
		kind, below, _ = kindOf(t.Elem())
		return "map of " + plural(kind), below, ".*"
	case reflect.Bool:
		return "boolean", nil, ""
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer", nil, ""
	case reflect.Float32, reflect.Float64:
		return "number", nil, ""
	case reflect.Struct:
		if strings.HasPrefix(t.PkgPath(), module) {
			return "object", t, ""
		}
		return t.Name(), nil, "" // a type of Kubernetes, which its reference describes
	}
	return t.Kind().String(), nil, ""
}

// commentsOf returns the comments of the fields of a struct, by name, from the source.
func commentsOf(root fs.FS, config reflect.Type) (map[string]string, error) {
	folder := strings.TrimPrefix(config.PkgPath(), module)
	entries, err := fs.ReadDir(root, folder)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range entries {
		if path.Ext(e.Name()) != ".go" {
			continue
		}
		source, err := fs.ReadFile(root, path.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), source, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != config.Name() {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						out[name.Name] = strings.TrimSpace(f.Doc.Text())
					}
				}
			}
			return false
		})
	}
	return out, nil
}
