package output

import (
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Wrap returns text for a writer: on a terminal, lines that are too long are divided at spaces, and continue with
// two more spaces than they begin with. Other writers get the text as it is.
func Wrap(w io.Writer, text string) string {
	return wrapLines(w, text, below, func(string) bool { return false })
}

// WrapProse returns text of paragraphs and lists for a writer: on a terminal, the lines of a paragraph become as long
// as there is space. Lines with an indent, such as commands, stay as they are.
func WrapProse(w io.Writer, text string) string {
	if Width(w) <= 0 {
		return text
	}
	continues := func(line string) bool { return line != "" && !strings.ContainsRune(" -", rune(line[0])) }
	var out strings.Builder
	before := ""
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case out.Len() == 0 && before == "":
		case continues(before) && continues(line):
			out.WriteString(" ")
		default:
			out.WriteString("\n")
		}
		out.WriteString(line)
		before = line
	}
	return wrapLines(w, out.String(), "", isCommand)
}

func isCommand(line string) bool { return strings.HasPrefix(line, " ") }

// wrapLines divides lines, except for some. The following ones have a further indent.
func wrapLines(w io.Writer, text, further string, stays func(line string) bool) string {
	columns := Width(w)
	if columns <= 0 {
		return text
	}
	measure := func(part string) int { return TextWidth(withoutControls(w, part)) }
	var out strings.Builder
	for line := range strings.Lines(text) {
		content := strings.TrimSuffix(line, "\n")
		if measure(content) <= columns || stays(content) {
			out.WriteString(line)
			continue
		}
		words := strings.TrimLeft(content, " ")
		indent := content[:len(content)-len(words)]
		lines := wrapText(words, max(columns-len(indent)-len(further), 1), measure)
		out.WriteString(indent + strings.Join(lines, "\n"+indent+further) + line[len(content):])
	}
	return out.String()
}

// withoutControls returns text without the control sequences of this package.
func withoutControls(w io.Writer, text string) string {
	own, ok := w.(*Writer)
	if !ok {
		for i := range len(controlLetters) {
			text = strings.ReplaceAll(text, controlOf(controlLetters[i]), "")
		}
		return text
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, own.marker)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = after[min(1, len(after)):]
	}
}

// wrapText divides text at spaces into lines of at most some columns, and longer words after punctuation. Several
// spaces within a line stay.
func wrapText(text string, columns int, measure func(string) int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && measure(line)+1+measure(word) <= columns {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, strings.TrimRight(line, " "))
		}
		for measure(word) > columns && !isWhole(word) {
			at := divide(word, columns)
			lines, word = append(lines, word[:at]), word[at:]
		}
		line = word
	}
	return append(lines, strings.TrimRight(line, " "))
}

// isWhole reports whether a word is not divided: a color, and an address that users copy.
func isWhole(word string) bool {
	return strings.Contains(word, "\x1b") || strings.HasPrefix(word, "https://")
}

// divide returns where to divide a word that is longer than some columns: after the last punctuation in the second
// half of them, otherwise where they end.
func divide(word string, columns int) int {
	end, used, after := 0, 0, 0
	for at, r := range word {
		used += runeWidth(r)
		if used > columns && at > 0 {
			break
		}
		end = at + len(string(r))
		if used > columns/2 && strings.ContainsRune("-/.,:;=&|()", r) {
			after = end
		}
	}
	if after > 0 {
		return after
	}
	return end
}

// TextWidth returns the number of columns of a terminal that printable text takes.
func TextWidth(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth returns the columns of a character, by the Unicode Standard Annex 11.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) { // it changes the one before it
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
