package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks checks that each link of a document leads to an existing file and heading.
func TestLinks(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	links := regexp.MustCompile(`\]\(([^)#:]*)(#[^):]*)?\)`)
	code := regexp.MustCompile("`[^`\n]*`")
	found := 0
	for _, document := range documents(t, root) {
		for _, link := range links.FindAllStringSubmatch(code.ReplaceAllString(read(t, root, document), ""), -1) {
			found++
			target := path.Join(path.Dir(document), link[1])
			if link[1] == "" {
				target = document
			}
			if _, err := fs.Stat(root, target); err != nil {
				t.Errorf("%s: the link to %s leads nowhere: %v", document, link[1], err)
				continue
			}
			if link[2] != "" && !headings(read(t, root, target))[link[2]] {
				t.Errorf("%s: %s has no heading %s", document, target, link[2])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d links, want more", found)
	}
}

func documents(t *testing.T, root fs.FS) []string {
	out, err := fs.Glob(root, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, root fs.FS, name string) string {
	t.Helper()
	raw, err := fs.ReadFile(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// headings are the anchors of a document's headings.
func headings(document string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(document) {
		if text, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); found && line[0] == '#' {
			out["#"+strings.ReplaceAll(anchor(strings.NewReplacer("?", "", ",", "", "`", "").Replace(strings.TrimSpace(text))), " ", "-")] = true
		}
	}
	return out
}
