package output

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Writer makes text of others harmless for the terminal or the log that it reaches: it writes
// characters that change how a terminal shows other text as escapes, which are also those of
// JSON and of double-quoted YAML. Control sequences of this package pass, because they
// contain a secret. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	to io.Writer
	// marker begins the control sequences of this package.
	marker string
	// commands is set if lines can be workflow commands of GitHub.
	commands bool
	// rest is the end of what was written, if it needs the next bytes.
	rest []byte
	// inLine is set after the first character of a line that is no white space.
	inLine bool
}

// NewWriter returns a Writer to w. The caller calls Flush at the end.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w, marker: "\x1b" + rand.Text()} }

// The control sequences of this package, by the letter that follows the marker.
const (
	controlRed     = 'r'
	controlGreen   = 'g'
	controlYellow  = 'y'
	controlMagenta = 'm'
	controlCyan    = 'b'
	controlBold    = 'B'
	controlFaint   = 'f'
	controlReset   = '0'
	controlErase   = 'e'
	controlClear   = 'c'
	controlCommand = ':'

	// controlLetters are those of colors.
	controlLetters = "rgymbBf0"
)

// controlOf returns the text of a control sequence, "" for an unknown one.
func controlOf(letter byte) string {
	switch letter {
	case controlRed:
		return "\x1b[31m"
	case controlGreen:
		return "\x1b[32m"
	case controlYellow:
		return "\x1b[33m"
	case controlMagenta:
		return "\x1b[35m"
	case controlCyan:
		return "\x1b[36m"
	case controlBold:
		return "\x1b[1m"
	case controlFaint:
		return "\x1b[2m"
	case controlReset:
		return "\x1b[0m"
	case controlErase: // moves the cursor to the begin of the line and erases the line
		return "\r\x1b[K"
	case controlClear: // moves the cursor to the top of an empty terminal
		return "\x1b[H\x1b[2J"
	case controlCommand: // begins a workflow command
		return "::"
	}
	return ""
}

// control returns what makes w write a control sequence.
func control(w io.Writer, letter byte) string {
	if own, ok := w.(*Writer); ok {
		return own.marker + string(letter)
	}
	return controlOf(letter)
}

// EraseScreen returns what makes w, a terminal, empty.
func EraseScreen(w io.Writer) string { return control(w, controlClear) }

// WorkflowCommand returns the begin of a workflow command of GitHub in w.
func WorkflowCommand(w io.Writer) string { return control(w, controlCommand) }

// EscapeCommands makes w escape text that GitHub would execute as a workflow command.
func EscapeCommands(w io.Writer) {
	if own, ok := w.(*Writer); ok {
		own.mu.Lock()
		defer own.mu.Unlock()
		own.commands = true
	}
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.write(append(w.rest, p...), false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what still waited for the next bytes.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(w.rest, true)
}

// write writes text, up to what needs the next bytes unless it is the last one.
func (w *Writer) write(text []byte, last bool) error {
	var out bytes.Buffer
	for len(text) > 0 {
		n := w.next(&out, text, last)
		if n == 0 {
			break
		}
		text = text[n:]
	}
	w.rest = bytes.Clone(text)
	if out.Len() == 0 {
		return nil
	}
	_, err := w.to.Write(out.Bytes())
	return err //nolint:wrapcheck // the caller of Write adds the context
}

// next writes the first control sequence or character of a text, and returns its length; 0
// if it needs the next bytes.
func (w *Writer) next(out *bytes.Buffer, text []byte, last bool) int {
	if !last && (!utf8.FullRune(text) || w.incomplete(text)) {
		return 0
	}
	if after, ok := bytes.CutPrefix(text, []byte(w.marker)); ok && len(after) > 0 && controlOf(after[0]) != "" {
		out.WriteString(controlOf(after[0]))
		return len(w.marker) + 1
	}
	r, size := utf8.DecodeRune(text)
	switch {
	case r == utf8.RuneError && size == 1:
		fmt.Fprintf(out, `\x%02x`, text[0])
	case isForbidden(r) || w.beginsCommand(text):
		out.WriteString(escapeOf(r))
	default:
		out.Write(text[:size])
	}
	w.inLine = r != '\n' && (w.inLine || !unicode.IsSpace(r))
	return size
}

// GitHub executes lines that begin with "::", after white space, and "##[" in lines.
// https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
const newCommand, oldCommand = "::", "##["

// beginsCommand reports whether GitHub would execute a text.
func (w *Writer) beginsCommand(text []byte) bool {
	return w.commands && (!w.inLine && bytes.HasPrefix(text, []byte(newCommand)) || bytes.HasPrefix(text, []byte(oldCommand)))
}

// incomplete reports whether a text can become a control sequence or a workflow command.
func (w *Writer) incomplete(text []byte) bool {
	isPart := func(of string) bool { return len(text) < len(of) && strings.HasPrefix(of, string(text)) }
	return len(text) <= len(w.marker) && strings.HasPrefix(w.marker, string(text)) ||
		w.commands && (isPart(oldCommand) || !w.inLine && isPart(newCommand))
}

// isForbidden reports whether a character can change how other text is shown, or is
// invisible: control characters except line feeds and tabs, characters of the direction of
// text, and others without a shape of their own (Unicode Standard Annexes 9 and 44).
func isForbidden(r rune) bool {
	if r < 0x7f {
		return r < ' ' && r != '\n' && r != '\t'
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point) ||
		r >= 0xE0100 && r <= 0xE01EF // variation selectors that no emoji has
}

// escapeOf returns the escape of a character in YAML; in JSON too if it has 16 bits.
func escapeOf(r rune) string {
	if r > 0xFFFF {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
