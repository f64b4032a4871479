package gatekeeper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Operations of a ModifySet.
const (
	operationMerge = "merge"
	operationPrune = "prune"
)

// fieldPatch changes a field by a JSONPatch, in an object or in each element e of a list, with
// the index i.
type fieldPatch struct {
	list   []locationNode // before the elements; empty is the object itself
	fields []locationNode // of the object or element
	filter []string
}

// modifySet adds values to a list or removes them, as a JSONPatch: an ApplyConfiguration
// removes nothing.
func (b *builder) modifySet(m *mutator, location []locationNode) {
	values, ok := b.values(m)
	if !ok {
		return
	}
	s, ok := newFieldPatch(location, nil)
	if location[0].name == metadataField || !ok {
		b.leaveOut(
			"spec.location",
			"the location is in metadata, has several lists or one without a wildcard, or a name that CEL reserves",
			"write a WebhookPolicy with a JSONPatch",
		)
		return
	}
	if s.filter, ok = b.pathTests(m, location); !ok {
		return
	}
	b.patch(s.modify(m.Spec.Parameters.Operation, values))
}

// newFieldPatch returns the patch of a location without lists or with one wildcard, whose
// fields have names of CEL.
func newFieldPatch(location []locationNode, filter []string) (*fieldPatch, bool) {
	s := &fieldPatch{fields: location, filter: filter}
	isList := func(n locationNode) bool { return n.key != "" }
	if at := slices.IndexFunc(location, isList); at >= 0 {
		s.list, s.fields = location[:at+1], location[at+1:]
	}
	return s, len(s.fields) > 0 && !slices.ContainsFunc(s.fields, isList) &&
		(len(s.list) == 0 || s.list[len(s.list)-1].isGlob()) &&
		!slices.ContainsFunc(location, func(n locationNode) bool { return !celtext.IsVariable(n.name) })
}

// values returns the values as a list in CEL.
func (b *builder) values(m *mutator) (string, bool) {
	p := &m.Spec.Parameters
	if o := p.Operation; o != "" && o != operationMerge && o != operationPrune {
		b.leaveOut("spec.parameters.operation", fmt.Sprintf("the operation %q is not known", o), "write merge or prune")
		return "", false
	}
	var given []any
	if p.Values != nil {
		given = p.Values.FromList
	}
	for i, v := range given {
		_, isText := v.(string)
		_, isNumber := v.(int64)
		if !isText && !isNumber || slices.Contains(given[:i], v) {
			b.leaveOut(
				fmt.Sprintf("spec.parameters.values.fromList[%d]", i),
				"it is neither a text nor an integer, or is twice in the list",
				"write a WebhookPolicy with a JSONPatch",
			)
			return "", false
		}
	}
	text, _ := literalText(given)
	return text, true
}

// parents returns operations that add absent parents of the field, as Gatekeeper does.
func (s *fieldPatch) parents() (parts []string) {
	for i := 1; i < len(s.fields); i++ {
		parts = append(parts, s.setIf(s.fields[:i], "!"+s.current(i)+".hasValue()", "{}"))
	}
	return parts
}

// modify returns the operations of a ModifySet.
func (s *fieldPatch) modify(operation, values string) string {
	parts := s.parents()
	current := s.current(len(s.fields))
	list := current + ".orValue([])"
	if operation == operationPrune {
		return strings.Join(
			append(
				parts,
				s.setIf(s.fields, current+".hasValue()", fmt.Sprintf("%s.filter(v, !(v in %s))", list, values)),
			),
			" + ",
		)
	}
	return strings.Join(
		append(parts, s.setIf(s.fields, "", fmt.Sprintf("%s + %s.filter(v, !(v in %s))", list, values, list))),
		" + ",
	)
}

// current returns a field as an optional.
func (s *fieldPatch) current(n int) string {
	out := "object"
	if len(s.list) > 0 {
		out = "e"
	}
	return out + optionalChain(s.fields[:n])
}

func optionalChain(nodes []locationNode) (out string) {
	for _, n := range nodes {
		out += ".?" + n.name
	}
	return out
}

// setIf returns operations that set a field if a condition is true.
func (s *fieldPatch) setIf(fields []locationNode, condition, value string) string {
	conditions := s.filter
	if condition != "" {
		conditions = append(slices.Clone(conditions), condition)
	}
	operation := func(path string) string {
		return fmt.Sprintf(
			`JSONPatch{op: "add", path: %s, value: %s}`,
			path,
			value,
		)
	}
	switch {
	case len(s.list) > 0:
		path := fmt.Sprintf(
			"%s + string(i) + %s",
			celtext.QuoteText(jsonPointer(s.list)+"/"),
			celtext.QuoteText(jsonPointer(fields)),
		)
		arguments := []string{"i", "e"}
		if len(conditions) > 0 {
			arguments = append(arguments, strings.Join(conditions, " && "))
		}
		return fmt.Sprintf(
			"object%s.orValue([]).transformList(%s, %s)",
			optionalChain(s.list),
			strings.Join(arguments, ", "),
			operation(path),
		)
	case len(conditions) > 0:
		return fmt.Sprintf(
			"(%s ? [%s] : [])",
			strings.Join(conditions, " && "),
			operation(celtext.QuoteText(jsonPointer(fields))),
		)
	}
	return fmt.Sprintf("[%s]", operation(celtext.QuoteText(jsonPointer(fields))))
}

// jsonPointer returns the JSON pointer of fields, whose names need no escape.
func jsonPointer(nodes []locationNode) (out string) {
	for _, n := range nodes {
		out += "/" + n.name
	}
	return out
}
