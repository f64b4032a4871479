package main

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// painter colours what is written to a terminal.
type painter struct{ out io.Writer }

func (p painter) Write(text []byte) (int, error) {
	_, err := p.out.Write(paint(text))
	return len(text), err
}

// terminal returns a writer that colours lines if the file is a terminal, unless the user sets NO_COLOR.
func terminal(file *os.File) io.Writer {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != "" {
		return file
	}
	return painter{out: file}
}

// paint colours whole lines by their beginning. The words of a line say the same as its colour.
func paint(text []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		content := strings.TrimSuffix(line, "\n")
		colour, end := colourOf(content)
		if colour == "" {
			out.WriteString(line)
			continue
		}
		out.WriteString("\x1b[" + colour + "m" + content[:end] + "\x1b[0m" + content[end:] + line[len(content):])
	}
	return out.Bytes()
}

// colourOf returns the parameters of the escape sequence for a line, and how much of it has the colour:
// denials red, warnings yellow, what is created green, commands bold, results cyan, and times faint.
func colourOf(line string) (string, int) {
	for _, c := range []struct{ prefix, colour string }{
		{"$ ", "1"}, {"Error from server", "31"}, {"The pods ", "31"}, {"Warning: ", "33"}, {"# ", "36"}, {"pod/", "32"},
	} {
		if strings.HasPrefix(line, c.prefix) {
			return c.colour, len(line)
		}
	}
	if end := strings.Index(line, "]"); strings.HasPrefix(line, "[") && end > 0 {
		return "2", end + 1
	}
	return "", 0
}
