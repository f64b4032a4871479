package documents

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
)

const (
	guide = "docs/design/extending.md"
	// maxFieldFiles is the number of files that a new optional field touches.
	maxFieldFiles = 8
)

var (
	guideRow    = regexp.MustCompile("(?m)^\\| ((?:`[^`]+`(?:, )?)+) \\|")
	guidePath   = regexp.MustCompile("`([^`]+)`")
	placeholder = regexp.MustCompile(`<\w+>`)
)

// TestExtending compares the guide to additions with the repository: the files that it names
// exist, where <name> is any name; a field needs few of them; and no file that lists versions
// of Kubernetes is missing.
func TestExtending(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, guide))
	if err != nil {
		t.Fatal(err)
	}
	sections := sectionsOf(string(text))
	for title, files := range sections {
		if len(files) == 0 {
			t.Errorf("section %q names no files", title)
		}
		for _, file := range files {
			found, err := filepath.Glob(filepath.Join(root, placeholder.ReplaceAllString(file, "*")))
			if err != nil || len(found) == 0 {
				t.Errorf("section %q: there is no file %s (%v)", title, file, err)
			}
		}
	}
	if n := len(sections["A field of a policy"]); n == 0 || n > maxFieldFiles {
		t.Errorf("a field needs %d files, want 1 to %d", n, maxFieldFiles)
	}
	named := sections["A Kubernetes version"]
	for _, file := range filesWithVersions(t) {
		if !slices.Contains(named, file) {
			t.Errorf("%s lists versions of Kubernetes: name it in %s", file, guide)
		}
	}
}

// sectionsOf returns the paths in the first column of the tables, by the title of the section.
func sectionsOf(text string) map[string][]string {
	out := map[string][]string{}
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		out[title] = nil
		for _, row := range guideRow.FindAllStringSubmatch(body, -1) {
			for _, path := range guidePath.FindAllStringSubmatch(row[1], -1) {
				out[title] = append(out[title], path[1])
			}
		}
	}
	return out
}

// filesWithVersions returns the files that name three of the supported versions, or the
// oldest and the latest one on one line, and one file of those that have a version in their
// name. Generated files and results of runs are no places to edit.
func filesWithVersions(t *testing.T) []string {
	t.Helper()
	var supported []string
	for e := policy.OldestEngine; e <= policy.LatestEngine; e++ {
		supported = append(supported, e.String())
	}
	version := regexp.MustCompile(`\b(` + strings.ReplaceAll(strings.Join(supported, "|"), ".", `\.`) + `)\b`)
	span := regexp.MustCompile(regexp.QuoteMeta(supported[0]) + `\b.*\b` + regexp.QuoteMeta(supported[len(supported)-1]) + `\b`)
	tree := os.DirFS(root)
	var out []string
	err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isNoPlaceToEdit(path):
			return fs.SkipDir
		case entry.IsDir() || isNoPlaceToEdit(path) || !entry.Type().IsRegular():
			return nil
		}
		if strings.Contains(entry.Name(), supported[0]+".") && filepath.Ext(path) != ".sum" {
			out = append(out, path)
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		found := version.FindAllString(string(text), -1)
		slices.Sort(found)
		if len(slices.Compact(found)) >= 3 || span.Match(text) {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Errorf("only %d files list versions: the search is broken", len(out))
	}
	return out
}

func isNoPlaceToEdit(path string) bool {
	switch path {
	case ".git", "bin", "dist", "library", "CHANGELOG.md", "docs/reference", "docs/performance", "docs/images", guide:
		return true
	}
	switch filepath.Ext(path) {
	case ".sum", ".svg", ".cast", ".png":
		return true
	case ".mod":
		return !strings.Contains(path, "hack/kubernetes/")
	}
	return filepath.Base(path) == "testdata" || filepath.Base(path) == "node_modules"
}
