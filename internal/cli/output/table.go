package output

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// gap is the number of columns of a terminal between two columns of a table.
	gap = 3
	// narrowest is the least width of the last column beside the others. If it would be narrower, it is below them.
	narrowest = 28
	// shortest is the least width to which the other columns shrink.
	shortest = 24
	// below indents what is below its row.
	below = "  "
)

// WriteTable writes rows in aligned columns under a header, like kubectl. On a terminal, the table has at most its
// width: the last column is wrapped, and columns without space are below their row. Cells are printable, so that
// their columns have the width that a terminal shows. Decisions and states have their color.
func WriteTable(w io.Writer, header []string, rows [][]string) error {
	return WriteTableFunc(w, header, rows, func(s Style, column int, text string) string {
		switch header[column] {
		case "DECISION", "BEFORE", "RESULT", "READY":
			return PaintAs(s, text, text)
		}
		return text
	})
}

// WriteTableFunc is WriteTable with a function that gives cells their color.
func WriteTableFunc(w io.Writer, header []string, rows [][]string, paint func(s Style, column int, text string) string) error {
	t := table{style: Colored(w), header: printableCells(header), paintCell: paint}
	for _, row := range rows {
		t.rows = append(t.rows, printableCells(row))
	}
	t.fit(Width(w))
	if _, err := io.WriteString(w, t.text()); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

func printableCells(row []string) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = Printable(cell)
	}
	return out
}

// table is a table with its layout.
type table struct {
	style  Style
	header []string
	rows   [][]string
	// widths are those of the columns that are beside each other. The others are below their row.
	widths []int
	// total is the width of the terminal; 0 without one.
	total     int
	paintCell func(s Style, column int, text string) string
}

// fit chooses the layout for a width.
func (t *table) fit(total int) {
	t.total = total
	t.widths = make([]int, len(t.header))
	for i := range t.widths {
		t.widths[i] = TextWidth(t.header[i])
		for _, row := range t.rows {
			t.widths[i] = max(t.widths[i], TextWidth(row[i]))
		}
	}
	last := len(t.widths) - 1
	if total <= 0 || widthOf(t.widths) <= total || last < 0 {
		return
	}
	if rest := total - widthOf(t.widths[:last]) - gap; rest >= min(narrowest, t.widths[last]) {
		t.widths[last] = rest
		return
	}
	for beside := max(last, 1); beside > 0; beside-- {
		t.widths = t.widths[:beside]
		if t.shrink() || beside == 1 {
			return
		}
	}
}

// shrink makes the widest columns narrower, and reports whether the table fits.
func (t *table) shrink() bool {
	widths := slices.Clone(t.widths)
	for widthOf(widths) > t.total {
		widest := 0
		for i, width := range widths {
			if width > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= max(shortest, TextWidth(t.header[widest])) {
			return false
		}
		widths[widest]--
	}
	t.widths = widths
	return true
}

// widthOf returns the width of columns beside each other.
func widthOf(widths []int) (total int) {
	for _, width := range widths {
		total += width
	}
	return total + gap*max(len(widths)-1, 0)
}

func (t *table) text() string {
	var out strings.Builder
	t.writeRow(&out, t.header, true)
	for _, row := range t.rows {
		t.writeRow(&out, row, false)
	}
	return out.String()
}

// writeRow writes the lines of a row: its columns, and those that are below them.
func (t *table) writeRow(out *strings.Builder, row []string, isHeader bool) {
	cells := make([][]string, len(t.widths))
	height := 1
	for i, width := range t.widths {
		cells[i] = []string{row[i]}
		if t.total > 0 {
			cells[i] = wrapText(row[i], max(width, 1), TextWidth)
		}
		height = max(height, len(cells[i]))
	}
	for line := range height {
		pad := 0
		for i, width := range t.widths {
			if line < len(cells[i]) && cells[i][line] != "" {
				out.WriteString(strings.Repeat(" ", pad) + t.paint(i, cells[i][line], isHeader))
				pad = -TextWidth(cells[i][line])
			}
			pad += width + gap
		}
		if line < height-1 {
			out.WriteString("\n")
		}
	}
	t.writeBelow(out, row, isHeader)
}

// writeBelow writes the cells that are below their row. Several have their names before them, and share lines if there
// is space; one is below its name. A dash, which only keeps a column in its place, is not written.
func (t *table) writeBelow(out *strings.Builder, row []string, isHeader bool) {
	several := len(t.header)-len(t.widths) > 1
	space := max(t.total-len(below), 1)
	used := 0
	for i := len(t.widths); i < len(row); i++ {
		if row[i] == "" || row[i] == "-" && several || isHeader && (several || t.isEmpty(i)) {
			continue
		}
		name := ""
		if several {
			name = t.header[i] + ": "
		}
		lines := wrapText(name+row[i], space, TextWidth)
		begin := "\n" + below
		if width := TextWidth(lines[0]); used > 0 && len(lines) == 1 && used+gap+width <= space {
			begin = strings.Repeat(" ", gap)
			used += gap + width
		} else {
			used = width
		}
		value, isNamed := strings.CutPrefix(lines[0], name)
		if !isNamed { // it is longer than the line
			value, name = lines[0], ""
		}
		out.WriteString(begin + Paint(t.style, Faint, name) + t.paint(i, value, isHeader))
		for _, line := range lines[1:] {
			out.WriteString("\n" + below + line)
			used = space // nothing follows the last one
		}
	}
	out.WriteString("\n")
}

// isEmpty reports whether no row has text in a column.
func (t *table) isEmpty(column int) bool {
	return !slices.ContainsFunc(t.rows, func(row []string) bool { return row[column] != "" })
}

// paint gives headers, decisions and states their color.
func (t *table) paint(column int, text string, isHeader bool) string {
	if isHeader {
		return Paint(t.style, Bold, text)
	}
	return t.paintCell(t.style, column, text)
}

// PaintAs gives a text the color of a decision or a state. The text has the same meaning without the color.
func PaintAs(s Style, word, text string) string {
	switch word {
	case "deny", "fail", "left out", "False":
		return Paint(s, Red, text)
	case "error":
		return Paint(s, Magenta, text)
	case "warn", "audit", "ratchet", "excepted", "breakglass", "changed", "Unknown", "unknown":
		return Paint(s, Yellow, text)
	case "allow", "converted", "True":
		return Paint(s, Green, text)
	case "mutate", "annotate":
		return Paint(s, Cyan, text)
	case "skip", "suspended", "unmatched", "not evaluated":
		return Paint(s, Faint, text)
	}
	return text
}

// Printable returns text on one line, with escapes like those of a Writer.
func Printable(text string) string {
	var out strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		switch {
		case r == '\n' || r == '\t':
			out.WriteByte(' ')
		case isForbidden(r):
			out.WriteString(escapeOf(r))
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
