package report

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/output"
)

//go:embed page.html
var pageText string

// page is what the template shows. All texts are printable, and the template escapes them.
type page struct {
	Title, Summary, Made string
	Notes                []string
	Namespaces           []string
	Rows                 []pageRow
	Legend               []legendEntry
}

type pageRow struct {
	ID, Policy string
	Total      int
	Cells      []pageCell
	Findings   []pageFinding
}

// pageCell is a cell of the heat map. Heat is 1 to 4.
type pageCell struct {
	Count       int
	Sign, Class string
	Heat        int
	Label       string
}

type pageFinding struct{ Namespace, Object, Decision, Class, Message string }

type legendEntry struct{ Sign, Class, Decision string }

// page returns the HTML of the report: one document without scripts that loads nothing.
func (r *Report) page() ([]byte, error) {
	parsed, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("parsing the template: %w", err)
	}
	g := r.grid()
	p := page{Title: output.Printable(r.Title), Summary: output.Printable(r.Summary), Made: r.Made.UTC().Format("2006-01-02 15:04 MST")}
	for _, note := range r.Notes {
		p.Notes = append(p.Notes, output.Printable(note))
	}
	for _, namespace := range g.namespaces {
		p.Namespaces = append(p.Namespaces, namespaceName(namespace))
	}
	for _, decision := range g.decisions() {
		p.Legend = append(p.Legend, legendEntry{sign(decision), classOf(decision), decision})
	}
	for i, policy := range g.policies {
		p.Rows = append(p.Rows, r.row(g, policy, fmt.Sprintf("policy-%d", i)))
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("writing the report: %w", err)
	}
	return out.Bytes(), nil
}

func (r *Report) row(g *grid, policy, id string) pageRow {
	row := pageRow{ID: id, Policy: output.Printable(policy), Total: g.totals[policy].Count}
	most := 1
	for _, c := range g.cells {
		most = max(most, c.Count)
	}
	for _, namespace := range g.namespaces {
		c := g.cells[[2]string{policy, namespace}]
		cell := pageCell{Count: c.Count}
		if c.Count > 0 {
			cell.Sign, cell.Class, cell.Heat = sign(c.Worst), classOf(c.Worst), 1+3*c.Count/most
			cell.Label = fmt.Sprintf("%s in %s: %s, at worst %s", row.Policy, namespaceName(namespace),
				output.Count(c.Count, "object", "objects"), c.Worst)
		}
		row.Cells = append(row.Cells, cell)
	}
	for _, f := range r.Findings {
		if f.Policy == policy && slices.Contains(severities(), f.Decision) {
			row.Findings = append(row.Findings, pageFinding{
				namespaceName(f.Namespace), output.Printable(f.Object), f.Decision, classOf(f.Decision), output.Printable(f.Message),
			})
		}
	}
	return row
}

// classOf is the class of a decision in the style sheet.
func classOf(decision string) string { return "d-" + strings.ReplaceAll(decision, " ", "-") }
