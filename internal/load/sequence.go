package load

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// sequence returns a document for each of several values in JSON, which need no separator, as kubectl and jq read and
// write them. What is no JSON after them is a document, too, so that its problem is reported.
func (d *document) sequence() []*document {
	if !bytes.HasPrefix(bytes.TrimLeft(d.text, " \t\r\n"), []byte("{")) {
		return []*document{d}
	}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(d.text), jsontext.AllowDuplicateNames(true))
	var out []*document
	next := &document{file: d.file, line: d.line, column: d.column, text: d.text}
	for len(bytes.TrimSpace(next.text)) > 0 {
		start := int(decoder.InputOffset())
		if _, err := decoder.ReadValue(); err != nil {
			return append(out, next)
		}
		size := int(decoder.InputOffset()) - start
		out = append(out, next)
		next = next.cut(size)
	}
	return out
}

// cut ends a document, and returns one of what follows.
func (d *document) cut(size int) *document {
	rest := &document{file: d.file, line: d.line, column: d.column + size, text: d.text[size:]}
	d.text = d.text[:size]
	if n := bytes.Count(d.text, []byte("\n")); n > 0 {
		rest.line, rest.column = d.line+n, size-1-bytes.LastIndexByte(d.text, '\n')
	}
	return rest
}

// checkEnd reports content after the end of the document, which parsers of YAML ignore.
func (d *document) checkEnd() error {
	if d.isBlockMapping() && !bytes.Contains(d.text, []byte("\n...")) {
		return nil // it ends with the text
	}
	decoder := yaml.NewDecoder(bytes.NewReader(d.text))
	var first, next yaml.Node
	if err := decoder.Decode(&first); err != nil {
		return nil //nolint:nilerr // what converts the document reports it
	}
	err := decoder.Decode(&next)
	if errors.Is(err, io.EOF) {
		return nil
	}
	at := d.at(next.Line, next.Column)
	if located := (*Error)(nil); err != nil && errors.As(d.locate(err), &located) {
		at = located.Position
	}
	return &Error{Position: at, Text: `another document begins here: write "---" on the line before it`}
}

// isBlockMapping reports whether the document begins with a key that is not quoted.
func (d *document) isBlockMapping() bool {
	for line := range bytes.Lines(d.text) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			return 'a' <= line[0]|0x20 && line[0]|0x20 <= 'z'
		}
	}
	return true // nothing
}
