package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/plugins"
)

type sampleConfig struct {
	sampleTyped `json:",inline"`
	// seconds is how long, a|b. Default: 300.
	Seconds *int64 `json:"seconds,omitempty"`
	// levels are
	// some.
	Levels map[string]string `json:"levels,omitempty"`
	// of is one of several.
	Of []sampleEntry `json:"of,omitempty"`
	// selector selects.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	private int
}

type sampleTyped struct {
	// kind is its kind.
	Kind string `json:"kind,omitempty"`
}

type sampleEntry struct {
	// ready says whether it is.
	Ready bool `json:"ready"`
}

type sampleEmpty struct{}

type sampleBare struct {
	Name string `json:"name"`
}

type sampleUntagged struct {
	// name is one.
	Name string
}

func TestConfigTable(t *testing.T) {
	_ = sampleConfig{}.private
	const want = "| config | type | |\n|---|---|---|\n" +
		"| `kind` | string | kind is its kind. |\n" +
		"| `seconds` | integer | seconds is how long, a\\|b. Default: 300. |\n" +
		"| `levels` | map of strings | levels are some. |\n" +
		"| `of` | list of objects | of is one of several. |\n" +
		"| `of[].ready` | boolean | ready says whether it is. |\n" +
		"| `selector` | LabelSelector | selector selects. |\n"
	source := sourceOfTest(t)
	got, err := configTable(source, reflect.TypeFor[sampleConfig]())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if got, err := configTable(source, reflect.TypeFor[sampleEmpty]()); got != "" || err != nil {
		t.Errorf("without settings: %q, %v", got, err)
	}
	for name, config := range map[string]reflect.Type{"no comment": reflect.TypeFor[sampleBare](), "no tag": reflect.TypeFor[sampleUntagged]()} {
		if _, err := configTable(source, config); err == nil || !strings.Contains(err.Error(), "Name: give it a JSON tag and a comment") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := configTable(source, nil); err == nil {
		t.Error("a definition without a type was taken")
	}
}

// sourceOfTest is this file, where the program looks for the types in it.
func sourceOfTest(t *testing.T) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile("plugins_test.go")
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.TrimPrefix(reflect.TypeFor[sampleConfig]().PkgPath(), module)
	return fstest.MapFS{folder + "/plugins_test.go": {Data: text}}
}

// Every plugin has a page; one with settings has them in it as they are in the
// code. No page is about nothing.
func TestPluginPages(t *testing.T) {
	root := filepath.Join("..", "..")
	pagesLeft := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "docs", "plugins", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		pagesLeft[filepath.Base(f)] = true
	}
	for _, d := range plugins.All() {
		page := pageOf(string(d.Name))
		delete(pagesLeft, page)
		document := read(t, os.DirFS(root), "docs/plugins/"+page)
		table, err := configTable(os.DirFS(root), d.Config)
		if err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		if table == "" {
			continue
		}
		if want, err := intoMarks(document, table); err != nil || want != document {
			t.Errorf("docs/plugins/%s is stale: run make manifests (%v)", page, err)
		}
	}
	for page := range pagesLeft {
		t.Errorf("docs/plugins/%s is about no plugin", page)
	}
}

// TestPluginTable: the table of admission controllers is complete, in order, and
// says of each what is known here. test/plugins compares it with an API server.
func TestPluginTable(t *testing.T) {
	const inReference, inServer = 35, 41
	document := read(t, os.DirFS(filepath.Join("..", "..")), "docs/policies/plugins.md")
	rows := regexp.MustCompile(`(?m)^\| ([A-Z]\w+) \| (.*?) \| (.*?) \|$`).FindAllStringSubmatch(document, -1)
	if len(rows) != inServer {
		t.Fatalf("%d rows, want %d", len(rows), inServer)
	}
	offered := map[string]string{}
	for i, r := range rows {
		name, here, text := r[1], r[2], r[3]
		if i > 0 && i != inReference && name <= rows[i-1][1] {
			t.Errorf("%s stands after %s", name, rows[i-1][1])
		}
		if text == "" {
			t.Errorf("nothing is said of %s", name)
		}
		switch page, isOffered := strings.CutPrefix(here, "[offered](../plugins/"); {
		case isOffered:
			offered[name] = strings.TrimSuffix(page, ")")
		case here != "on everywhere" && here != "impossible" && here != "no":
			t.Errorf("%s is %q here", name, here)
		}
	}
	for _, d := range plugins.All() {
		if page := pageOf(string(d.Name)); offered[string(d.Name)] != page {
			t.Errorf("the row of %s does not lead to plugins/%s", d.Name, page)
		}
		delete(offered, string(d.Name))
	}
	for name := range offered {
		t.Errorf("%s is offered, and not in the catalogue", name)
	}
}
