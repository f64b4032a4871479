package output

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes rows in aligned columns under a header, like kubectl. Cells are
// printable, so that their columns have the width that a terminal shows.
func WriteTable(w io.Writer, header []string, rows [][]string) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Printable(cell)
		}
		if _, err := fmt.Fprintln(table, strings.Join(cells, "\t")); err != nil {
			return fmt.Errorf("writing the table: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("writing the table: %w", err)
		}
	}
	return nil
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
