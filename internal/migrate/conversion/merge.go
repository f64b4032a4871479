package conversion

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

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
		mergeElements(target, origin)
	default:
		mergeComments(target, origin)
		if target.Tag == origin.Tag && !isAmbiguousScalar(target.Value) {
			target.Style = origin.Style
		}
	}
}

// mergeElements merges the elements of lists: those at the same place if the lists have the same
// length, and otherwise equal ones and those with the same name.
func mergeElements(target, origin *yaml.Node) {
	used := map[*yaml.Node]bool{}
	for i, t := range target.Content {
		at := i
		if len(target.Content) != len(origin.Content) {
			at = slices.IndexFunc(origin.Content, func(o *yaml.Node) bool {
				return !used[o] && (equalNodes(t, o) || nameOfNode(t) != "" && nameOfNode(t) == nameOfNode(o))
			})
		}
		if at >= 0 {
			used[origin.Content[at]] = true
			mergeNodes(t, origin.Content[at])
		}
	}
}

// nameOfNode returns the name of an element of a list; empty if it has none.
func nameOfNode(n *yaml.Node) string {
	for _, field := range []string{"name", "key"} {
		if _, value := childOf(n, field); value != nil && value.Kind == yaml.ScalarNode {
			return value.Value
		}
	}
	return ""
}

// collectComments puts the comments of a value before another one, without those that the document
// has already, and those of the value of one field.
func collectComments(root, target, from *yaml.Node, except string) {
	var known []string
	visitComments(root, nil, func(text string) { known = append(known, text) })
	_, skipped := childOf(from, except)
	var texts []string
	visitComments(from, skipped, func(text string) {
		if !slices.Contains(known, text) && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	})
	if target.HeadComment != "" {
		texts = append([]string{target.HeadComment}, texts...)
	}
	target.HeadComment = strings.Join(texts, "\n")
}

// visitComments visits the comments of a value in their order, without those of one that is skipped.
func visitComments(n, skipped *yaml.Node, visit func(text string)) {
	if n == skipped {
		return
	}
	add := func(text string) {
		if text != "" {
			visit(text)
		}
	}
	add(n.HeadComment)
	add(n.LineComment)
	for _, c := range n.Content {
		visitComments(c, skipped, visit)
	}
	add(n.FootComment)
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
