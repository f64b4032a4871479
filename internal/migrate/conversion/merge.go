package conversion

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// childOf returns a value of a mapping or sequence, and its key.
func childOf(n *yaml.Node, element string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == element {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(element); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}

// mergeNodes gives a value the form of its origin. Equal values become the origin, others get
// its comments and its order of fields.
func mergeNodes(target, origin *yaml.Node) {
	switch {
	case equalNodes(target, origin):
		*target = *cloneNode(origin)
	case target.Kind != origin.Kind:
	case target.Kind == yaml.MappingNode:
		mergeMappings(target, origin)
	case target.Kind == yaml.SequenceNode:
		mergeComments(target, origin)
		if len(target.Content) == len(origin.Content) {
			for i := range target.Content {
				mergeNodes(target.Content[i], origin.Content[i])
			}
		}
	default:
		mergeComments(target, origin)
		if target.Tag == origin.Tag && !isAmbiguousScalar(target.Value) {
			target.Style = origin.Style
		}
	}
}

// mergeMappings merges fields with equal names, and sorts them like those of the origin.
// Others follow.
func mergeMappings(target, origin *yaml.Node) {
	mergeComments(target, origin)
	type field struct {
		key, value *yaml.Node
		place      int
	}
	var fields []field
	for i := 0; i+1 < len(target.Content); i += 2 {
		f := field{key: target.Content[i], value: target.Content[i+1], place: len(origin.Content)}
		for j := 0; j+1 < len(origin.Content); j += 2 {
			if origin.Content[j].Value == f.key.Value {
				f.place = j
				mergeComments(f.key, origin.Content[j])
				mergeNodes(f.value, origin.Content[j+1])
			}
		}
		fields = append(fields, f)
	}
	slices.SortStableFunc(fields, func(a, b field) int { return cmp.Compare(a.place, b.place) })
	target.Content = target.Content[:0]
	for _, f := range fields {
		target.Content = append(target.Content, f.key, f.value)
	}
}

func mergeComments(target, origin *yaml.Node) {
	target.HeadComment = cmp.Or(target.HeadComment, origin.HeadComment)
	target.LineComment = cmp.Or(target.LineComment, origin.LineComment)
	target.FootComment = cmp.Or(target.FootComment, origin.FootComment)
}

// equalNodes reports whether nodes are the same value for Kubernetes. An origin with aliases to
// other parts of its document is not.
func equalNodes(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	switch a.Kind {
	case yaml.ScalarNode:
		return reflect.DeepEqual(scalarValue(a), scalarValue(b))
	case yaml.SequenceNode:
		for i := range a.Content {
			if !equalNodes(a.Content[i], b.Content[i]) {
				return false
			}
		}
		return true
	case yaml.MappingNode:
		for i := 0; i+1 < len(a.Content); i += 2 {
			if _, other := childOf(b, a.Content[i].Value); other == nil || !equalNodes(a.Content[i+1], other) {
				return false
			}
		}
		return true
	case yaml.DocumentNode, yaml.AliasNode:
	}
	return false
}

// scalarValue returns the value of a scalar as Kubernetes decodes it.
func scalarValue(n *yaml.Node) any {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&quoted != 0 || n.Tag == "!!str" && !isAmbiguousScalar(n.Value) {
		return n.Value
	}
	var value any
	if err := sigsyaml.Unmarshal([]byte(n.Value), &value); err != nil {
		return n.Value
	}
	return value
}

func cloneNode(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = cloneNode(c)
	}
	return &out
}
