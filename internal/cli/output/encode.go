package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// WriteJSON writes a value as indented JSON that a Writer does not change.
func WriteJSON(w io.Writer, value any) error {
	text, err := encodeJSON(value, func(r rune) string { // JSON has no escape of more than 16 bits
		high, low := utf16.EncodeRune(r)
		return escapeOf(high) + escapeOf(low)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, text)
	return err
}

// encodeJSON encodes a value with escapes for what a Writer would change.
func encodeJSON(value any, escapeLarge func(rune) string) (string, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the result: %w", err)
	}
	var out strings.Builder
	for _, r := range string(text) {
		switch {
		case !isForbidden(r):
			out.WriteRune(r)
		case r > 0xFFFF:
			out.WriteString(escapeLarge(r))
		default:
			out.WriteString(escapeOf(r))
		}
	}
	return out.String(), nil
}

// WriteYAML writes documents of YAML. Texts that a Writer would change are double-quoted,
// so that the escapes of the Writer are those of YAML.
func WriteYAML(w io.Writer, text []byte) error {
	if strings.ContainsFunc(string(text), isForbidden) || bytes.Contains(text, []byte(newCommand)) || bytes.Contains(text, []byte(oldCommand)) {
		quoted, err := quoteYAML(text)
		if err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
		text = quoted
	}
	_, err := w.Write(text)
	return err //nolint:wrapcheck // of the terminal
}

// quoteYAML encodes documents again, with double quotes where they are necessary.
func quoteYAML(text []byte) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			quoteNode(&document)
			err = encoder.Encode(&document)
		}
		if err != nil {
			return nil, err //nolint:wrapcheck // the caller does
		}
	}
	err := encoder.Close()
	return out.Bytes(), err //nolint:wrapcheck // the caller does
}

func quoteNode(n *yaml.Node) {
	for _, comment := range []*string{&n.HeadComment, &n.LineComment, &n.FootComment} {
		*comment = strings.ReplaceAll(*comment, oldCommand, "# #[")
	}
	if n.Kind == yaml.ScalarNode && (strings.ContainsFunc(n.Value, isForbidden) || strings.Contains(n.Value, newCommand) || strings.Contains(n.Value, oldCommand)) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quoteNode(c)
	}
}
