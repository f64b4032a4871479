package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
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
	for name, config := range map[string]reflect.Type{
		"no comment": reflect.TypeFor[sampleBare](),
		"no tag":     reflect.TypeFor[sampleUntagged](),
	} {
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

// Every plugin has a section in a page; one with settings has them in it as they are in the
// code. No page is about nothing.
func TestPluginPages(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	folder := pluginFolder(t)
	left, err := fs.Glob(folder, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range plugins.All() {
		page, err := pageOf(folder, string(d.Name))
		if err != nil {
			t.Error(err)
			continue
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == page })
		table, err := configTable(root, d.Config)
		if err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		if table == "" {
			continue
		}
		document := read(t, folder, page)
		if want, err := intoSection(document, string(d.Name), table); err != nil || want != document {
			t.Errorf("docs/plugins/%s is stale: run make manifests (%v)", page, err)
		}
	}
	for _, page := range left {
		t.Errorf("docs/plugins/%s is about no plugin", page)
	}
}

func pluginFolder(t *testing.T) fs.FS {
	t.Helper()
	folder, err := fs.Sub(os.DirFS(filepath.Join("..", "..")), "docs/plugins")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestIntoSection(t *testing.T) {
	const (
		first  = "# Two plugins\n\n## First\n\nabout it\n\n" + beginMark + "\nold\n" + endMark + "\n### More\n"
		second = "\n## Second\n\n" + beginMark + endMark
	)
	for name, tc := range map[string]struct{ page, plugin, want, wantErr string }{
		"the title": {
			page:   "# First\n" + beginMark + endMark + "\n## Limits\n",
			plugin: "First",
			want:   "# First\n" + beginMark + "\nnew\n" + endMark + "\n## Limits\n",
		},
		"the first of two":      {page: first + second, plugin: "First", want: strings.Replace(first, "\nold\n", "\nnew\n", 1) + second},
		"the last of two":       {page: first + second, plugin: "Second", want: first + "\n## Second\n\n" + beginMark + "\nnew\n" + endMark},
		"another plugin":        {page: first + second, plugin: "Third", wantErr: "it has no heading Third"},
		"the marks of the next": {page: "# All\n\n## First\n" + second, plugin: "First", wantErr: "the marks between which to write are missing"},
		"a name that goes on":   {page: "# All\n\n## FirstPlugin\n" + beginMark + endMark, plugin: "First", wantErr: "it has no heading First"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := intoSection(tc.page, tc.plugin, "new")
			if message := messageOf(err); message != tc.wantErr {
				t.Fatalf("got error %q, want %q", message, tc.wantErr)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
		})
	}
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
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
	folder := pluginFolder(t)
	for _, d := range plugins.All() {
		page, err := pageOf(folder, string(d.Name))
		if err != nil {
			t.Fatal(err)
		}
		if linked, _, _ := strings.Cut(offered[string(d.Name)], "#"); linked != page {
			t.Errorf("the row of %s leads to plugins/%s, want plugins/%s", d.Name, linked, page)
		}
		delete(offered, string(d.Name))
	}
	for name := range offered {
		t.Errorf("%s is offered, and not in the catalogue", name)
	}
}
