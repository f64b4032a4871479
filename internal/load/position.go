package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Position is a place in an input. Line and Column begin at 1; 0 means that they are not
// known.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String is "file:line:column".
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Error is a problem of an input.
type Error struct {
	Position
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Position.String() + ": " + e.Text }

// document is one document of a file.
type document struct {
	file   string
	line   int    // lines before the document
	column int    // bytes before the document in its first line
	text   []byte // nil for an object that is in no file

	once   sync.Once
	parsed yaml.Node
	failed error
}

// at returns the position of a line and a column of the document.
func (d *document) at(line, column int) Position {
	column = max(column, 1)
	if line <= 1 {
		column += d.column
	}
	return Position{File: d.file, Line: d.line + max(line, 1), Column: column}
}

// atOffset returns the position of a byte of the document.
func (d *document) atOffset(offset int) Position {
	before := d.text[:min(max(offset, 0), len(d.text))]
	return d.at(bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'))
}

// node returns the root node of the document, nil if it is empty. Callers do not change it.
func (d *document) node() (*yaml.Node, error) {
	d.once.Do(func() { d.failed = yaml.Unmarshal(d.text, &d.parsed) })
	if d.failed != nil {
		return nil, d.failed
	}
	if len(d.parsed.Content) == 0 {
		return nil, nil //nolint:nilnil // an empty document is no error
	}
	return d.parsed.Content[0], nil
}

// Node returns a copy of the object with its comments, as nodes of YAML.
func (o *Object) Node() (*yaml.Node, error) {
	node, err := o.document.node()
	if err != nil || node == nil {
		return nil, o.Errorf("", "reading the comments of %s: %v", o, err)
	}
	for _, element := range o.path {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		if _, node = child(node, element); node == nil {
			return nil, o.Errorf("", "reading the comments of %s: the document has no field %s", o, element)
		}
	}
	out := *node
	if len(o.path) == 0 && out.HeadComment == "" {
		out.HeadComment = o.document.parsed.HeadComment
	}
	return &out, nil
}

// find returns the position of the value at a path, or of its nearest parent that exists.
// Elements of the path are names of fields and indices of lists. For a field it is the
// position of its name.
func (d *document) find(path []string) Position {
	if d.text == nil {
		return Position{File: d.file}
	}
	node, err := d.node()
	if err != nil || node == nil {
		return d.atOffset(indexOfText(d.text))
	}
	line, column := node.Line, node.Column
	for _, element := range path {
		for node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		key, value := child(node, element)
		if value == nil {
			break
		}
		node, line, column = value, key.Line, key.Column
	}
	return d.at(line, column)
}

// child returns a value of a mapping or sequence, and where it begins.
func child(node *yaml.Node, element string) (key, value *yaml.Node) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == element {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(element); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	}
	return nil, nil
}

func indexOfText(text []byte) int { return len(text) - len(bytes.TrimLeft(text, " \t\r\n")) }

// At returns the position of a field, as "spec.validations[0].expression".
func (o *Object) At(field string) Position {
	return o.document.find(append(append([]string(nil), o.path...), SplitField(field)...))
}

// Errorf returns an error about a field; "" is the object itself.
func (o *Object) Errorf(field, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	return &Error{Position: o.At(field), Text: text}
}

// SplitField splits a path of Kubernetes: names follow dots, indices and keys are in
// brackets.
func SplitField(field string) []string {
	var out []string
	for field != "" {
		switch i := strings.IndexAny(field, ".["); {
		case i < 0:
			return append(out, field)
		case i > 0:
			out, field = append(out, field[:i]), field[i:]
		case field[0] == '.':
			field = field[1:]
		default:
			inner, rest, _ := strings.Cut(field[1:], "]")
			out, field = append(out, strings.Trim(inner, `"`)), rest
		}
	}
	return out
}

// fieldAt returns the path of the value at an offset of JSON.
func fieldAt(raw []byte, offset int64) []string {
	decoder := jsontext.NewDecoder(bytes.NewReader(raw))
	for decoder.InputOffset() < offset {
		if _, err := decoder.ReadToken(); err != nil {
			break
		}
	}
	var out []string
	for token := range decoder.StackPointer().Tokens() {
		out = append(out, token)
	}
	return out
}
