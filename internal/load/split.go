package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxDocuments is the maximum number of documents of one file.
const maxDocuments = 1_000_000

// split splits a file at the lines "---" and "...", and between objects of JSON that follow each
// other, as those of JSON lines do.
func split(name string, text []byte) ([]*document, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	s := splitter{file: name}
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, (&document{file: name, text: text}).binary()
	}
	start := document{file: name}
	line := 0
	begin := 0 // the offset of start
	for at := 0; at < len(text); line++ {
		end := at + bytes.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}
		if isMarker(text[at:end]) {
			if err := s.add(start.line, start.column, text[begin:at]); err != nil {
				return nil, err
			}
			// What follows on the line of the marker, such as a comment, belongs to the document.
			start.line, start.column, begin = line, 0, at+len("---")
			if indexOfContent(text[begin:end], 0) < end-begin {
				start.column = len("---")
			}
		}
		at = end
	}
	if err := s.add(start.line, start.column, text[begin:]); err != nil {
		return nil, err
	}
	return s.documents, nil
}

// isMarker reports whether a line begins or ends a document of YAML.
func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	rest := line[len("---"):]
	return len(rest) == 0 || isSpace(rest[0])
}

type splitter struct {
	file      string
	documents []*document
}

// add adds the documents of a text without markers.
func (s *splitter) add(line, column int, text []byte) error {
	for {
		d := &document{file: s.file, line: line, column: column, text: text}
		next := d.next()
		d.text = text[:next]
		switch {
		case len(d.text) > maxDocument:
			return &Error{Position: d.at(1, 1), Text: fmt.Sprintf("the document is larger than %d MiB: split it", maxDocument>>20)}
		case len(s.documents) >= maxDocuments:
			return &Error{Position: d.at(1, 1), Text: fmt.Sprintf("the file has more than %d documents: split it", maxDocuments)}
		}
		s.documents = append(s.documents, d)
		if next == len(text) {
			return nil
		}
		start := d.atOffset(next)
		line, column, text = start.Line-1, start.Column-1, text[next:]
	}
}

// next returns where the document after the object in braces begins: the length of the text if
// there is none.
func (d *document) next() int {
	first := indexOfContent(d.text, 0)
	rest := d.text[first:]
	isFlow := bytes.HasPrefix(rest, []byte("{")) || bytes.HasPrefix(rest, []byte("["))
	if !isFlow || bytes.HasPrefix(rest, []byte("{{")) { // a template of Helm is no sequence of objects
		return len(d.text)
	}
	return indexOfContent(d.text, endOfFlow(d.text, first))
}

// indexOfContent returns where, at or after an offset, text begins that is neither white space
// nor a comment of YAML.
func indexOfContent(text []byte, at int) int {
	for at < len(text) {
		switch {
		case isSpace(text[at]):
			at++
		case text[at] == '#' && (at == 0 || isSpace(text[at-1])):
			at = endOfLine(text, at)
		default:
			return at
		}
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func endOfLine(text []byte, at int) int {
	if end := bytes.IndexByte(text[at:], '\n'); end >= 0 {
		return at + end
	}
	return len(text)
}

// endOfFlow returns where the map or list in brackets ends that begins at an offset, in JSON or
// YAML: the length of the text if it does not end.
func endOfFlow(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch c := text[at]; c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		case '"', '\'':
			if isSpace(text[at-1]) || bytes.IndexByte([]byte("{[,:"), text[at-1]) >= 0 { // others are within a word
				at = endOfQuoted(text, at)
				continue
			}
		case '#':
			if isSpace(text[at-1]) {
				at = endOfLine(text, at)
				continue
			}
		}
		at++
	}
	return at
}

// endOfQuoted returns where the text in quotes ends that begins at an offset. The two quotes that
// stand for one in single quotes are read as a part of the text.
func endOfQuoted(text []byte, at int) int {
	quote := text[at]
	for at++; at < len(text); at++ {
		switch {
		case text[at] == '\\' && quote == '"':
			at++
		case text[at] == quote && quote == '\'' && at+1 < len(text) && text[at+1] == quote:
			at++
		case text[at] == quote:
			return at + 1
		}
	}
	return len(text)
}

// checkRest rejects text after the end of the document, which the YAML library ignores. A map that
// begins a line without quotes ends where the text does, so that it is not read twice.
func (d *document) checkRest() error {
	first := indexOfContent(d.text, 0)
	inLine := first > 0 && d.text[first-1] != '\n' || first == 0 && d.column > 0
	if !inLine && (first == len(d.text) || bytes.IndexByte([]byte(`{["'|>&!*%`), d.text[first]) < 0) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(d.text))
	var node yaml.Node
	if decoder.Decode(&node) != nil {
		return nil //nolint:nilerr // the conversion reports it
	}
	err := decoder.Decode(&node)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return d.locate(err)
}
