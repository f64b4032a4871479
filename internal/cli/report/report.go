// Package report shows the findings of a command as a heat map of policies and namespaces, and as a page of HTML.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// Finding is what a policy decides about an object.
type Finding struct {
	Policy    string
	Namespace string // "" for an object without one
	Object    string
	Decision  string
	Message   string
}

// Report has the findings of a command.
type Report struct {
	Title   string
	Summary string
	Made    time.Time
	// Findings include those that are not shown, such as mutations.
	Findings []Finding
	// Notes say what is not included.
	Notes []string
}

// Flags are those of a command that writes reports.
type Flags struct {
	heatMap bool
	html    string
}

// AddFlags adds the flags for reports.
func (f *Flags) AddFlags(c *cobra.Command) {
	c.Flags().BoolVar(&f.heatMap, "heat-map", false, "show the number of objects by policy and namespace instead of each object")
	c.Flags().StringVar(&f.html, "html", "", "also write a report for a browser to this file, which loads nothing from a network")
}

// IsHeatMap reports whether a heat map replaces the table.
func (f *Flags) IsHeatMap() bool { return f.heatMap }

// Check returns an error for flags that contradict each other.
func (f *Flags) Check(format output.Format) error {
	if f.heatMap && format != output.Table {
		return fmt.Errorf("--heat-map needs -o table: -o %s has all findings", format)
	}
	return nil
}

// WriteHTML writes the file of the flag, if it is set, and names it on stderr.
func (f *Flags) WriteHTML(o *output.Options, r *Report) error {
	if f.html == "" {
		return nil
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.html, page, 0o644); err != nil { //nolint:gosec // a report is for others
		return fmt.Errorf("writing the report of --html: %w", err)
	}
	_, err = fmt.Fprintf(o.ErrOut, "the report is in %s\n", output.Printable(f.html))
	return err
}

// severities returns the decisions that a heat map counts, the worst one first.
func severities() []string {
	return []string{"error", "deny", "fail", "warn", "audit", "not evaluated"}
}

// cell is what a policy finds in a namespace.
type cell struct {
	Count int
	Worst string // decision; "" without a finding
}

// add counts a finding.
func (c *cell) add(decision string) {
	order := severities()
	if c.Worst == "" || slices.Index(order, decision) < slices.Index(order, c.Worst) {
		c.Worst = decision
	}
	c.Count++
}

// join adds another cell.
func (c *cell) join(other cell) {
	if other.Count > 0 {
		c.add(other.Worst)
		c.Count += other.Count - 1
	}
}

// grid has a row for each policy with findings, and a column for each namespace. Those with the
// worst decision come first, then those with most objects.
type grid struct {
	policies, namespaces []string
	cells                map[[2]string]cell // by policy and namespace
	totals               map[string]cell    // by policy
}

// grid counts each object once for a policy, with the worst of its decisions.
func (r *Report) grid() *grid {
	objects := map[Finding]cell{}
	for _, f := range r.Findings {
		if slices.Contains(severities(), f.Decision) {
			key := Finding{Policy: f.Policy, Namespace: f.Namespace, Object: f.Object}
			c := objects[key]
			c.add(f.Decision)
			objects[key] = c
		}
	}
	g := &grid{cells: map[[2]string]cell{}, totals: map[string]cell{}}
	columns := map[string]cell{}
	for f, c := range objects {
		c.Count = 1
		at, total, column := g.cells[[2]string{f.Policy, f.Namespace}], g.totals[f.Policy], columns[f.Namespace]
		at.join(c)
		total.join(c)
		column.join(c)
		g.cells[[2]string{f.Policy, f.Namespace}], g.totals[f.Policy], columns[f.Namespace] = at, total, column
	}
	g.policies, g.namespaces = byImportance(g.totals), byImportance(columns)
	return g
}

// decisions returns the worst decisions of the cells, in their order.
func (g *grid) decisions() []string {
	return slices.DeleteFunc(severities(), func(decision string) bool {
		for _, c := range g.cells {
			if c.Worst == decision {
				return false
			}
		}
		return true
	})
}

func byImportance(cells map[string]cell) []string {
	order := severities()
	rank := func(name string) int { return slices.Index(order, cells[name].Worst) }
	return slices.SortedFunc(maps.Keys(cells), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(cells[b].Count, cells[a].Count), cmp.Compare(a, b))
	})
}
