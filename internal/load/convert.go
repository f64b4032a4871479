package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	// maxDepth is the maximum number of lists and maps within each other.
	maxDepth = 200
	// maxExpanded is the maximum number of values of a document with aliases.
	maxExpanded = 1 << 20
)

// toJSON converts a document of YAML or JSON as kubectl does. It returns nil for an empty
// one.
func (d *document) toJSON() ([]byte, error) {
	text := bytes.TrimSpace(d.text)
	if len(text) == 0 {
		return nil, nil
	}
	if text[0] == '{' && json.Valid(text) {
		return text, d.checkJSON()
	}
	if err := d.checkRest(); err != nil {
		return nil, err
	}
	if bytes.ContainsAny(text, "&*") {
		if err := d.checkAliases(); err != nil {
			return nil, err
		}
	}
	raw, err := sigsyaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, d.locate(err)
	}
	if string(raw) == "null" {
		return nil, nil
	}
	if at := tooDeep(raw); at >= 0 {
		return nil, &Error{Position: d.find(fieldAt(raw, int64(at))), Text: tooDeepText()}
	}
	return raw, nil
}

func tooDeepText() string {
	return fmt.Sprintf("more than %d lists and maps are within each other: remove some of them", maxDepth)
}

// tooDeep returns the offset at which JSON exceeds the maximum depth, or -1.
func tooDeep(raw []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

// checkJSON finds duplicate names and too much depth.
func (d *document) checkJSON() error {
	if at := tooDeep(d.text); at >= 0 {
		return &Error{Position: d.atOffset(at), Text: tooDeepText()}
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(d.text))
	_, err := decoder.ReadValue()
	var invalid *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Position: d.atOffset(int(invalid.ByteOffset)), Text: duplicateText(invalid.JSONPointer.LastToken())}
	case errors.As(err, &invalid):
		return &Error{Position: d.atOffset(int(invalid.ByteOffset)), Text: "invalid JSON: " + invalid.Err.Error()}
	}
	return &Error{Position: d.at(1, 1), Text: "invalid JSON: " + err.Error()}
}

func duplicateText(key string) string {
	return fmt.Sprintf("the key %q is there twice: remove one of them", key)
}

// checkAliases rejects documents whose aliases expand to too many values, or that contain
// themselves. Other errors are found later.
func (d *document) checkAliases() error {
	root, err := d.node()
	if err != nil || root == nil {
		return nil //nolint:nilerr // the conversion reports it
	}
	sizes := map[*yaml.Node]int{}
	var size func(n *yaml.Node) int
	size = func(n *yaml.Node) int {
		if known, ok := sizes[n]; ok {
			return known
		}
		sizes[n] = maxExpanded + 1 // until it is known, for a value that contains itself
		total := 1
		if n.Kind == yaml.AliasNode {
			total = size(n.Alias)
		}
		for _, c := range n.Content {
			total = min(total+size(c), maxExpanded+1)
		}
		sizes[n] = total
		return total
	}
	if size(root) <= maxExpanded {
		return nil
	}
	at := root
	for n := range sizes {
		if n.Kind == yaml.AliasNode && sizes[n] > maxExpanded && (at == root || n.Line < at.Line || n.Line == at.Line && n.Column < at.Column) {
			at = n
		}
	}
	return &Error{Position: d.at(at.Line, at.Column), Text: fmt.Sprintf("the aliases of the document expand to more than %d values, or one contains itself: write the values out", maxExpanded)}
}

// lineOf finds the line in an error of the YAML library, which has no other form.
var lineOf = regexp.MustCompile(`line (\d+): (.*)`)

// locate adds the position to an error of the conversion.
func (d *document) locate(err error) error {
	if !utf8.Valid(d.text) {
		return d.binary()
	}
	if root, invalid := d.node(); invalid == nil && root != nil {
		if duplicate := duplicateKey(root, 0); duplicate != nil {
			return &Error{Position: d.at(duplicate.Line, duplicate.Column), Text: duplicateText(duplicate.Value)}
		}
	}
	if at := bytes.Index(d.text, []byte("{{")); at >= 0 {
		return &Error{Position: d.atOffset(at), Text: "a template and no YAML: name the folder of its chart, which helm renders"}
	}
	if at := truncated(d.text); at > 0 {
		return &Error{Position: d.atOffset(at), Text: "invalid JSON: the text ends within an object: restore what is missing"}
	}
	found := lineOf.FindStringSubmatch(err.Error())
	if found == nil {
		return &Error{Position: d.atOffset(indexOfText(d.text)), Text: "invalid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	line, _ := strconv.Atoi(found[1]) // digits, and 0 is as good as too many of them
	if strings.HasPrefix(found[2], "did not find expected") {
		line++ // the library counts from 0 in the errors of its parser
	}
	if strings.HasSuffix(found[2], "<document start>") {
		found[2] = `text follows the end of the document: begin another one with "---"`
	}
	return d.invalidLine(line, found[2])
}

// truncated returns where JSON ends before its object does; 0 if it does not.
func truncated(text []byte) int {
	first := indexOfContent(text, 0)
	if !bytes.HasPrefix(text[first:], []byte("{")) {
		return 0
	}
	_, err := jsontext.NewDecoder(bytes.NewReader(text[first:]), jsontext.AllowDuplicateNames(true)).ReadValue()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return len(bytes.TrimRight(text, " \t\r\n"))
	}
	return 0
}

// invalidLine returns the error for a line. The library reports the line of a tab, or the
// one before it.
func (d *document) invalidLine(line int, text string) error {
	lines := bytes.Split(d.text, []byte("\n"))
	for _, n := range []int{line, line + 1} {
		if n < 1 || n > len(lines) {
			continue
		}
		indent := lines[n-1][:len(lines[n-1])-len(bytes.TrimLeft(lines[n-1], " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 {
			return &Error{Position: d.at(n, tab+1), Text: "a tab indents the line: use spaces"}
		}
	}
	column := 1
	if line >= 1 && line <= len(lines) {
		column = 1 + indexOfText(lines[line-1])
	}
	return &Error{Position: d.at(line, column), Text: "invalid YAML: " + text}
}

// duplicateKey returns the first key that is twice in a mapping.
func duplicateKey(n *yaml.Node, depth int) *yaml.Node {
	if depth > maxDepth {
		return nil
	}
	if n.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			if seen[n.Content[i].Value] {
				return n.Content[i]
			}
			seen[n.Content[i].Value] = true
		}
	}
	for _, c := range n.Content {
		if found := duplicateKey(c, depth+1); found != nil {
			return found
		}
	}
	return nil
}

func (d *document) binary() error {
	offset := 0
	for rest := d.text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 || r == 0 {
			break
		}
		offset, rest = offset+size, rest[size:]
	}
	return &Error{Position: d.atOffset(offset), Text: "binary data: the file must be YAML or JSON in UTF-8"}
}
