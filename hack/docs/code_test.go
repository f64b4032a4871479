package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestMetricsIn(t *testing.T) {
	source := `package p
func f() {
	a := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: "Things, a|b."}, []string{"x", "y"})
	b := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "b", Help: "B" +
		"."}, nil)
	c := prometheus.NewDesc("c", "C.", []string{"z"}, nil)
	r := prometheus.NewRegistry()
}`
	got, err := metricsIn(fstest.MapFS{"in/a.go": {Data: []byte(source)}, "in/a_test.go": {Data: []byte("nonsense")}}, "in")
	if err != nil {
		t.Fatal(err)
	}
	want := "| metric | type | labels | what |\n|---|---|---|---|\n" +
		"| `a_total` | counter | `x`, `y` | Things, a\\|b. |\n| `b` | gauge |  | B. |\n| `c` | gauge | `z` | C. |\n"
	if diff := cmp.Diff(want, metricTable(got)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestMetricsInRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ call, want string }{
		"a name that is computed": {
			call: `prometheus.NewGauge(prometheus.GaugeOpts{Name: name(), Help: "x"})`,
			want: "write the name and the help of prometheus.NewGauge as literals",
		},
		"no help": {
			call: `prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})`,
			want: "write the name and the help",
		},
		"options from somewhere": {
			call: `prometheus.NewGauge(options)`,
			want: "give the options of a metric as a literal",
		},
		"a description from pieces": {call: `prometheus.NewDesc("a"+b, "x", nil, nil)`, want: "as literals"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := metricsIn(fstest.MapFS{"in/a.go": {Data: []byte("package p\nvar x = " + tc.call)}}, "in")
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "in/a.go") {
				t.Errorf("got %v, want %q and the file", err, tc.want)
			}
		})
	}
}

func TestIntoMarks(t *testing.T) {
	got, err := intoMarks("a\n"+beginMark+"old\n"+endMark+"b\n", "new\n")
	if want := "a\n" + beginMark + "\nnew\n\n" + endMark + "b\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := intoMarks("no marks", "x"); err == nil {
		t.Error("a document without marks was written")
	}
}

const valuesSchema = `{"type": "object", "properties": {
  "replicas": {"type": "integer", "default": 2, "description": "How many."},
  "manager": {"type": "object", "description": "Flags.", "properties": {
    "drainMin": {"type": "string", "description": "--drain-min: how long.", "examples": ["15s"]}}},
  "image": {"type": "object", "description": "The image.", "properties": {
    "tag": {"type": "string", "default": "", "description": "Its tag, a|b."}}}}}`

func TestChartDocuments(t *testing.T) {
	schema := newObject()
	if err := json.Unmarshal([]byte(valuesSchema), schema); err != nil {
		t.Fatal(err)
	}
	values, err := valuesFile(schema)
	if err != nil {
		t.Fatal(err)
	}
	want := `
# How many.
replicas: 2

# Flags.
manager:

  # --drain-min: how long.
  # drainMin: "15s"
  {}

# The image.
image:

  # Its tag, a|b.
  tag: ""
`
	if _, got, _ := strings.Cut(values, "or none.\n"); got != want {
		t.Errorf("values.yaml (-want +got):\n%s", cmp.Diff(want, got))
	}
	document, err := valuesReference(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| `replicas` | integer | `2` | How many. |\n",
		"| `manager.drainMin` | string | `\"15s\"` | --drain-min: how long. |\n",
		"| `image.tag` | string | `\"\"` | Its tag, a\\|b. |\n",
	} {
		if !strings.Contains(document, row) {
			t.Errorf("the document has no row %s\n%s", row, document)
		}
	}
}

// Every flag has a value in the chart's schema, and in the documents.
func TestFlagsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "charts", "ostiary", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	schema := newObject()
	if err := json.Unmarshal(raw, schema); err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "flags.md"))
	if err != nil {
		t.Fatal(err)
	}
	inSchema := schema.object("properties").object("manager").object("properties")
	for _, f := range managerFlags() {
		if _, ok := inSchema.fields[camel(f.Name)]; !ok {
			t.Errorf("the chart's schema has no manager.%s: run make manifests", camel(f.Name))
		}
		if !strings.Contains(string(document), "| `--"+f.Name+"` |") {
			t.Errorf("docs/reference/flags.md has no --%s: run make manifests", f.Name)
		}
	}
}
