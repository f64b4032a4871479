package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const (
	// longestName is the width at which names of namespaces are cut, and longestPolicy that of policies.
	longestName, longestPolicy = 14, 34
	// cluster is the name of the column for objects without a namespace.
	cluster = "(cluster)"
	none    = "."
)

// WriteHeatMap writes the number of objects by policy and namespace. On a terminal, namespaces for which there is no
// space are one column.
func (r *Report) WriteHeatMap(w io.Writer) error {
	g := r.grid()
	if len(g.policies) == 0 {
		_, err := fmt.Fprintln(w, "No policy has a finding")
		return err
	}
	shown := g.fitting(output.Width(w))
	header := []string{"POLICY"}
	for _, namespace := range g.namespaces[:shown] {
		header = append(header, short(namespaceName(namespace), longestName))
	}
	if more := len(g.namespaces) - shown; more > 0 {
		header = append(header, fmt.Sprintf("+%d MORE", more))
	}
	header = append(header, "TOTAL")
	rows := make([][]string, len(g.policies))
	for i, policy := range g.policies {
		rows[i] = g.row(policy, shown)
	}
	if err := output.WriteTableFunc(w, header, rows, paintCell); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, output.Wrap(w, legend(g)))
	return err
}

// fitting returns the number of namespaces for which a terminal has space; all of them without one.
func (g *grid) fitting(width int) int {
	if width <= 0 {
		return len(g.namespaces)
	}
	longest := 0
	for _, policy := range g.policies {
		longest = max(longest, min(output.TextWidth(policy), longestPolicy))
	}
	const gap = 3
	rest := width - longest - gap - len("TOTAL")
	more := gap + len("+99 MORE")
	for i, namespace := range g.namespaces {
		column := gap + max(min(output.TextWidth(namespaceName(namespace)), longestName), len("999D"))
		isLast := i == len(g.namespaces)-1
		if rest < column || !isLast && rest-column < more {
			return i
		}
		rest -= column
	}
	return len(g.namespaces)
}

// row returns the cells of a policy: some namespaces, the others, and their sum.
func (g *grid) row(policy string, shown int) []string {
	out := []string{short(policy, longestPolicy)}
	var others cell
	for i, namespace := range g.namespaces {
		c := g.cells[[2]string{policy, namespace}]
		if i < shown {
			out = append(out, c.String())
		} else {
			others.join(c)
		}
	}
	if shown < len(g.namespaces) {
		out = append(out, others.String())
	}
	return append(out, strconv.Itoa(g.totals[policy].Count))
}

// String returns the number of objects, with the sign of the worst decision.
func (c cell) String() string {
	if c.Count == 0 {
		return none
	}
	return strconv.Itoa(c.Count) + sign(c.Worst)
}

// sign is the first letter of a decision, so that a heat map needs no colors.
func sign(decision string) string { return strings.ToUpper(decision[:1]) }

func paintCell(style output.Style, _ int, text string) string {
	for _, decision := range severities() {
		if strings.HasSuffix(text, sign(decision)) && strings.ContainsAny(text[:1], "123456789") {
			return output.PaintAs(style, decision, text)
		}
	}
	if text == none {
		return output.Paint(style, output.Faint, text)
	}
	return text
}

// legend names the signs that a heat map has.
func legend(g *grid) string {
	var parts []string
	for _, decision := range g.decisions() {
		parts = append(parts, sign(decision)+" "+decision)
	}
	return "objects with their worst decision: " + strings.Join(parts, ", ")
}

func namespaceName(namespace string) string {
	if namespace == "" {
		return cluster
	}
	return output.Printable(namespace)
}

// short cuts a name.
func short(name string, longest int) string {
	name = output.Printable(name)
	if output.TextWidth(name) <= longest {
		return name
	}
	var out strings.Builder
	for _, r := range name {
		if output.TextWidth(out.String()+string(r)) >= longest {
			break
		}
		out.WriteRune(r)
	}
	return out.String() + "…"
}
