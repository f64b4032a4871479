package versionskew

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// maxText and maxDepth limit what a replica can report.
	maxText  = 64 << 10
	maxDepth = 32
)

// String encodes the fields: a(b,c),d. Equal fields have equal texts.
func (f Fields) String() string {
	var out strings.Builder
	for i, name := range slices.Sorted(maps.Keys(f)) {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(name)
		if children := f[name]; len(children) > 0 {
			out.WriteString("(" + children.String() + ")")
		}
	}
	return out.String()
}

// ParseFields decodes what String returns.
func ParseFields(text string) (Fields, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%d bytes of fields exceed %d", len(text), maxText)
	}
	fields, rest, err := parseFields(text, 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("unexpected %q after the fields", rest[:1])
	}
	return fields, err
}

// parseFields decodes fields up to a closing parenthesis or the end, and returns the rest.
func parseFields(text string, depth int) (fields Fields, rest string, err error) {
	if depth > maxDepth {
		return nil, "", fmt.Errorf("fields are nested deeper than %d levels", maxDepth)
	}
	fields = Fields{}
	for text != "" && text[0] != ')' {
		end := strings.IndexAny(text, ",()")
		if end < 0 {
			end = len(text)
		}
		name := text[:end]
		if name == "" {
			return nil, "", fmt.Errorf("unexpected %q instead of a field", text[:1])
		}
		fields[name] = nil
		text = text[end:]
		if strings.HasPrefix(text, "(") {
			if fields[name], text, err = parseFields(text[1:], depth+1); err != nil {
				return nil, "", err
			}
			if !strings.HasPrefix(text, ")") {
				return nil, "", fmt.Errorf("the fields of %s have no end", name)
			}
			text = text[1:]
		}
		text = strings.TrimPrefix(text, ",")
	}
	return fields, text, nil
}
