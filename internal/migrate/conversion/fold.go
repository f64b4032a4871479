package conversion

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxLine is the length of lines at which expressions and messages are folded, which keeps their
// values.
const maxLine = 120

// foldLongTexts gives long expressions and messages the form of a folded block. It reports whether
// the value contains one, which no list or map on one line can.
func foldLongTexts(n *yaml.Node) (folded bool) {
	for i, c := range n.Content {
		isField := n.Kind == yaml.MappingNode && i%2 == 1 && isFoldable(n.Content[i-1].Value)
		if isField && c.Kind == yaml.ScalarNode && c.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			c.Value = withoutTrailingSpaces(n.Content[i-1].Value, c.Value)
			if len(c.Value) > maxLine && canFold(c.Value) {
				c.Style, folded = yaml.FoldedStyle, true
			}
		}
		if foldLongTexts(c) {
			folded = true
		}
	}
	if folded {
		n.Style &^= yaml.FlowStyle
	}
	return folded
}

func isFoldable(field string) bool {
	return slices.Contains([]string{"expression", "messageExpression", "valueExpression", "message"}, field)
}

// canFold reports whether a text on one line is the same in a folded block.
func canFold(text string) bool {
	return !strings.ContainsAny(text, "\n\t") && strings.TrimSpace(text) == text && strings.Contains(text, " ")
}

// withoutTrailingSpaces removes spaces at the end of the lines of an expression, with which it could
// not be a block.
func withoutTrailingSpaces(field, text string) string {
	hasLongConstant := strings.Contains(text, `"""`) || strings.Contains(text, "'''")
	if field == "message" || !strings.Contains(text, "\n") || hasLongConstant {
		return text
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return strings.Join(lines, "\n")
}

// blockHeader matches the end of a line whose value is a block without an indentation indicator.
var blockHeader = regexp.MustCompile(`(?:^|[:-] )([|>])[-+]?(?: +#.*)?$`)

// wrapFolded breaks the lines of folded blocks of a document. The encoder does not break lines.
func wrapFolded(document []byte) []byte {
	var out []string
	indent, folds := -1, false // of the block
	wrapped := false
	for line := range strings.SplitSeq(string(document), "\n") {
		text := strings.TrimLeft(line, " ")
		at := len(line) - len(text)
		if indent == 0 && text != "" { // the first line of the block
			indent = at
		}
		if indent > 0 && (text == "" || at >= indent) {
			if folds && at == indent && len(line) > maxLine {
				lines := wrapText(text, maxLine-indent)
				wrapped = wrapped || len(lines) > 1
				for _, l := range lines {
					out = append(out, line[:at]+l)
				}
				continue
			}
			out = append(out, line)
			continue
		}
		indent = -1
		if found := blockHeader.FindStringSubmatch(line); found != nil {
			indent, folds = 0, found[1] == ">"
		}
		out = append(out, line)
	}
	result := []byte(strings.Join(out, "\n"))
	if wrapped && !isSameDocument(document, result) {
		return document
	}
	return result
}

// isSameDocument reports whether documents have the same value.
func isSameDocument(a, b []byte) bool {
	var left, right any
	return !bytes.Equal(a, b) && yaml.Unmarshal(a, &left) == nil && yaml.Unmarshal(b, &right) == nil &&
		reflect.DeepEqual(left, right)
}

// wrapText breaks a text into lines at single spaces: after operators if there are any, and within
// constants only if there is no other space.
func wrapText(text string, width int) (lines []string) {
	for len(text) > width {
		at := breakOf(text, width)
		if at < 0 {
			break
		}
		lines = append(lines, text[:at])
		text = text[at+1:]
	}
	return append(lines, text)
}

// breakOf returns the best space for a break, or -1.
func breakOf(text string, width int) int {
	operator, outside, constant := -1, -1, -1
	inConstant := constantsIn(text)
	for i := 1; i+1 < len(text); i++ {
		if text[i] != ' ' || text[i-1] == ' ' || text[i+1] == ' ' {
			continue
		}
		if i > width && max(operator, outside, constant) >= 0 {
			break
		}
		switch {
		case inConstant[i]:
			constant = i
		case strings.HasSuffix(text[:i], "&&") || strings.HasSuffix(text[:i], "||"):
			operator, outside = i, i
		default:
			outside = i
		}
	}
	switch {
	case operator > width/2 || operator >= 0 && outside > width:
		return operator
	case outside > 0:
		return outside
	}
	return constant
}

// constantsIn returns for each byte of an expression whether it is within quotes.
func constantsIn(text string) []bool {
	out := make([]bool, len(text))
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		out[i] = quote != 0
		switch c := text[i]; {
		case quote != 0 && c == '\\' && i+1 < len(text):
			i++
			out[i] = true
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		}
	}
	return out
}
