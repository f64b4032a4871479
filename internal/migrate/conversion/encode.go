package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
)

// indentation is the indentation of the YAML.
const indentation = 2

// YAML returns the object as a document, with the comments, the styles and the order of
// fields of its origins where the values are equal.
func (o *Output) YAML() ([]byte, error) {
	root, err := nodeOf(o.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.Object.GetName(), err)
	}
	for _, origin := range o.Origins {
		source, err := origin.Source.Node()
		if err != nil {
			return nil, err
		}
		key, target := findField(root, origin.Field)
		from, value := findField(source, origin.SourceField)
		switch {
		case target == nil || value == nil:
		case origin.CommentsOnly:
			collectComments(root, target, value, origin.Except)
		default:
			if key != nil && from != nil {
				mergeComments(key, from)
			}
			mergeNodes(target, value)
		}
	}
	for field, text := range o.Comments {
		addLineComment(root, field, text)
	}
	return encodeNode(root)
}

// Encode returns an object as YAML, in the order of its Go type. Fields that users do not
// write are absent.
func Encode(object any) ([]byte, error) {
	root, err := nodeOf(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	return encodeNode(root)
}

func encodeNode(root *yaml.Node) ([]byte, error) {
	foldLongTexts(root)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(indentation)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("encoding YAML: %w", err)
	}
	return wrapFolded(out.Bytes()), nil
}

// nodeOf returns an object as nodes of YAML.
func nodeOf(object any) (*yaml.Node, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	root := document.Content[0]
	removeJSONStyle(root)
	moveToFront(root, "apiVersion")
	removeField(root, "status")
	if metadata := nodeAt(root, "metadata"); metadata != nil {
		removeField(metadata, "creationTimestamp")
	}
	return root, nil
}

// removeJSONStyle removes the style of JSON.
func removeJSONStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && isAmbiguousScalar(n.Value) {
		if n.Style = yaml.DoubleQuotedStyle; strings.Contains(n.Value, `"`) {
			n.Style = yaml.SingleQuotedStyle
		}
	}
	if n.Kind != yaml.ScalarNode && len(n.Content) == 0 || isShort(n) {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		removeJSONStyle(c)
	}
}

// isShort reports whether a node is a list that fits on a line.
func isShort(n *yaml.Node) bool {
	length := 0
	for _, c := range n.Content {
		if length += len(c.Value) + 2; c.Kind != yaml.ScalarNode {
			return false
		}
	}
	return n.Kind == yaml.SequenceNode && length <= maxLineLength
}

// maxLineLength is the maximum length of a scalar that is no string, and of a list on one line.
const maxLineLength = 64

// isAmbiguousScalar reports whether a text without quotes is not a string in one of the versions
// of YAML.
func isAmbiguousScalar(text string) bool {
	if len(text) > maxLineLength || strings.Contains(text, "\n") {
		return false
	}
	var value any
	err := sigsyaml.Unmarshal([]byte(text), &value)
	return err != nil || value != text
}

// nodeAt returns the value of a field, nil if it is absent.
func nodeAt(n *yaml.Node, field string) *yaml.Node {
	_, value := findField(n, field)
	return value
}

// findField returns a field and its value. The root has no field.
func findField(n *yaml.Node, field string) (key, value *yaml.Node) {
	value = n
	for _, element := range load.SplitField(field) {
		if key, value = childOf(value, element); value == nil {
			return nil, nil
		}
	}
	return key, value
}

// moveToFront moves a field to the front.
func moveToFront(mapping *yaml.Node, name string) {
	if key, value := childOf(mapping, name); key != nil {
		removeField(mapping, name)
		mapping.Content = append([]*yaml.Node{key, value}, mapping.Content...)
	}
}

func removeField(mapping *yaml.Node, name string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			mapping.Content = append(mapping.Content[:i], mapping.Content[i+2:]...)
			return
		}
	}
}

// addLineComment adds a comment at the end of the line of a field.
func addLineComment(root *yaml.Node, field, text string) {
	key, value := findField(root, field)
	if key == nil {
		return
	}
	if value.Kind == yaml.ScalarNode || value.Style&yaml.FlowStyle != 0 {
		value.LineComment = "# " + text
		return
	}
	value.Style |= yaml.FlowStyle
	value.LineComment = "# " + text
}
