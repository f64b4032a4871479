// Command structure measures how the hand-written Go code of the project is divided. It
// prints a table with a row for each package and a total:
//
//	go run ./hack/structure                      # all packages
//	go run ./hack/structure internal/migrate     # the packages in a folder
//	go run ./hack/structure -upward internal/policy
//
// Tests and generated files are not counted. Statements are those of the syntax tree, so a
// line that is wrapped, or a comment, does not change their number.
//
// A reference is a name of the package (a constant, variable, type, function or method) that
// a file uses and another file declares; it counts once for each pair of file and name. The
// files are put into an order in which as few references as possible lead to a later file.
// The references that still do are upward: they belong to circles of files, in which no file
// can be read and understood before the others. The order comes from the heuristic of Eades,
// Lin and Smyth, so the minimum may be slightly lower. With -upward, the command lists them.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	upward := flag.Bool("upward", false, "list the upward references")
	flag.Parse()
	if err := run(os.DirFS("."), flag.Args(), *upward, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

// run prints the table for the packages in some folders; no folder stands for the root.
func run(root fs.FS, folders []string, upward bool, out io.Writer) error {
	if len(folders) == 0 {
		folders = []string{"."}
	}
	folderSet := map[string]bool{}
	for _, folder := range folders {
		if err := addFolders(root, path.Clean(folder), folderSet); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "files\tlines\tstatements\treferences\tupward\t package")
	var total measures
	var listed []string
	for _, folder := range slices.Sorted(maps.Keys(folderSet)) {
		p, err := parsePackage(root, folder)
		if err != nil {
			return err
		}
		if len(p.files) == 0 {
			continue
		}
		m := p.measure()
		m.write(table, folder)
		total.add(m)
		listed = append(listed, m.upwardReferences...)
	}
	total.write(table, "total")
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if upward {
		_, _ = fmt.Fprintln(out, strings.Join(listed, "\n"))
	}
	return nil
}

// addFolders adds a folder and those below it, except folders that hold no code of the
// project: builds, test data and what tools hide behind a dot.
func addFolders(root fs.FS, folder string, into map[string]bool) error {
	return fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case name != "." && strings.HasPrefix(entry.Name(), "."), slices.Contains(notCode(), entry.Name()):
			return fs.SkipDir
		}
		into[name] = true
		return nil
	})
}

func notCode() []string { return []string{"bin", "dist", "testdata", "node_modules"} }

// measures are the numbers of a package or of all of them.
type measures struct {
	files, lines, statements, references int
	upwardReferences                     []string
}

func (m *measures) add(other measures) {
	m.files += other.files
	m.lines += other.lines
	m.statements += other.statements
	m.references += other.references
	m.upwardReferences = append(m.upwardReferences, other.upwardReferences...)
}

func (m *measures) write(to io.Writer, name string) {
	_, _ = fmt.Fprintf(
		to,
		"%d\t%d\t%d\t%d\t%d\t %s\n",
		m.files,
		m.lines,
		m.statements,
		m.references,
		len(m.upwardReferences),
		name,
	)
}
