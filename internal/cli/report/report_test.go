package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

func sample() *Report {
	r := &Report{Title: "Findings", Summary: "3 objects", Made: time.Unix(0, 0), Notes: []string{"secrets: no access"}}
	r.Findings = []Finding{
		{"require-team", "shop", "Pod shop/a", "deny", "add the label team"},
		{"require-team", "shop", "Pod shop/b", "warn", "add the label team"},
		{"require-team", "", "Node n", "audit", "add the label team"},
		{"images", "shop", "Pod shop/a", "warn", "pin the image"},
		{"images", "shop", "Pod shop/a", "error", "no such key: image"},
		{"images", "shop", "Pod shop/c", "mutate", ""},
		{"names-that-are-longer-than-a-column-for-names", "a-namespace-with-a-long-name", "Pod a", "not evaluated", "ask a cluster"},
	}
	return r
}

// An object counts once for a policy, with the worst decision; mutations do not count.
func TestHeatMap(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteHeatMap(&out); err != nil {
		t.Fatal(err)
	}
	want := `POLICY                               shop   (cluster)   a-namespace-w…   TOTAL
images                               1E     .           .                1
require-team                         2D     1A          .                3
names-that-are-longer-than-a-colu…   .      .           1N               1
objects with their worst decision: E error, D deny, A audit, N not evaluated
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHeatMapWithoutFindings(t *testing.T) {
	var out bytes.Buffer
	if err := (&Report{}).WriteHeatMap(&out); err != nil || out.String() != "No policy has a finding\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	page, err := (&Report{Title: "Findings"}).page()
	if err != nil || !bytes.Contains(page, []byte("No policy has a finding.")) {
		t.Errorf("got %v\n%s", err, page)
	}
}

// The namespaces without space are one column, and the sums are the same at each width.
func TestFitting(t *testing.T) {
	r := &Report{}
	for i := range 40 {
		for j := range i + 1 {
			r.Findings = append(r.Findings, Finding{"policy", fmt.Sprintf("namespace-%d", i), fmt.Sprint(j), "deny", ""})
		}
	}
	g := r.grid()
	for width, want := range map[int]int{0: 40, 20: 0, 40: 1, 80: 3, 160: 9, 1000: 40} {
		shown := g.fitting(width)
		if shown != want {
			t.Errorf("%d namespaces in %d columns, want %d", shown, width, want)
		}
		row := g.row("policy", shown)
		if got := row[len(row)-1]; got != "820" {
			t.Errorf("total %s in %d columns, want 820", got, width)
		}
		if shown < 40 && row[shown+1] != fmt.Sprintf("%dD", 820-sum(40-shown, 40)) {
			t.Errorf("others %s in %d columns", row[shown+1], width)
		}
	}
}

// sum returns the sum of the numbers after from, up to to.
func sum(from, to int) (out int) {
	for i := from + 1; i <= to; i++ {
		out += i
	}
	return out
}

// Names and messages of others change neither the page nor a terminal, and the page loads nothing.
func TestPageIsHarmless(t *testing.T) {
	const hostile = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e\u200b{{.}}</style>javascript:"
	r := sample()
	r.Title, r.Summary, r.Notes = hostile, hostile, []string{hostile}
	r.Findings = append(r.Findings, Finding{hostile, hostile, hostile, "deny", hostile})
	text, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, forbidden := range []string{"<script", "<img", "<link", "<iframe", "http:", "https:", "@import", "url(", "<base"} {
		if strings.Contains(strings.ToLower(page), forbidden) {
			t.Errorf("the page contains %s", forbidden)
		}
	}
	for _, r := range page {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Fatalf("%U in the page", r)
		}
	}
	for part, want := range map[string]int{
		"<style>": 1, "</style>": 1, "<details>": 4, "&lt;script&gt;": 12, `\u202e`: 12, "default-src 'none'": 1,
	} {
		if got := strings.Count(page, part); got != want {
			t.Errorf("%d times %s, want %d", got, part, want)
		}
	}
}

func TestFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	tests := map[string]struct {
		args       []string
		format     output.Format
		wantFile   bool
		wantErr    string
		wantErrOut string
	}{
		"no flags": {format: output.JSON},
		"a file": {
			args: []string{"--html", path}, format: output.JSON, wantFile: true, wantErrOut: "the report is in " + path + "\n",
		},
		"a heat map": {args: []string{"--heat-map"}, format: output.Table},
		"a heat map as JSON": {
			args: []string{"--heat-map"}, format: output.JSON, wantErr: "--heat-map needs -o table: -o json has all findings",
		},
		"a folder as the file": {args: []string{"--html", t.TempDir()}, format: output.Table, wantErr: "is a directory"},
		"a folder that is none": {
			args: []string{"--html", filepath.Join(path, "x", "y")}, format: output.Table, wantErr: "writing the report of --html: ",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			var f Flags
			c := &cobra.Command{}
			f.AddFlags(c)
			if err := c.ParseFlags(tt.args); err != nil {
				t.Fatal(err)
			}
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			err := f.Check(tt.format)
			if err == nil {
				err = f.WriteHTML(&output.Options{IOStreams: streams}, sample())
			}
			if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.wantErrOut, errOut.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			if text, err := os.ReadFile(path); (err == nil) != tt.wantFile || tt.wantFile && !bytes.Contains(text, []byte("add the label team")) {
				t.Errorf("file %q, %v", text, err)
			}
		})
	}
}
