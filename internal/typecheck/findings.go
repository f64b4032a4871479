package typecheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/nearest"
)

// findings are the problems of one policy. The same problem for several kinds is one.
type findings struct {
	kinds         []Kind
	stored        map[string]Kind // by the types of their objects
	discriminates bool
	all           []finding
}

// finding is a problem of an expression.
type finding struct {
	field  string
	kinds  []string
	text   string
	fields bool // the text is a field that the kinds do not have
}

func newFindings(kinds []Kind, discriminates bool) *findings {
	return &findings{kinds: kinds, stored: map[string]Kind{}, discriminates: discriminates}
}

// add adds a problem for a kind.
func (f *findings) add(e *expression, kind Kind, format string, args ...any) {
	f.merge(finding{field: e.field, kinds: []string{f.describe(kind)}, text: fmt.Sprintf(format, args...)})
}

func (f *findings) merge(found finding) {
	i := slices.IndexFunc(f.all, func(other finding) bool {
		return other.field == found.field && other.text == found.text && other.fields == found.fields
	})
	switch {
	case i < 0:
		f.all = append(f.all, found)
	case !slices.Contains(f.all[i].kinds, found.kinds[0]):
		f.all[i].kinds = append(f.all[i].kinds, found.kinds[0])
	}
}

// addMissing adds a field that a kind does not have. If the policy tells the kinds
// apart, a field that another of them has is no problem.
func (f *findings) addMissing(e *expression, kind, params Kind, m missing) {
	if strings.HasPrefix(m.object.name, paramsType) {
		kind = params
	} else if of, _, _ := strings.Cut(m.object.name, "."); f.stored[of].known() {
		kind = f.stored[of]
	} else if f.discriminates && f.otherHas(kind, m) {
		return
	}
	text := m.field
	if m.object.path != "" {
		text = m.object.path + "." + m.field
	}
	if similar := nearest.Name(m.field, m.object.fields()); similar != "" {
		text += ", did you mean " + similar + "?"
	}
	f.merge(finding{field: e.field, kinds: []string{f.describe(kind)}, text: text, fields: true})
}

func (f *findings) otherHas(kind Kind, m missing) bool {
	return slices.ContainsFunc(f.kinds, func(other Kind) bool {
		if other.GroupVersionKind == kind.GroupVersionKind || !other.known() {
			return false
		}
		at := root(other.Document, other.GroupVersionKind, objectType)
		for _, name := range append(strings.Split(m.object.name, ".")[1:], m.field) {
			next, ok := at.inner().field(name)
			if !ok {
				return false
			}
			at = next
		}
		return true
	})
}

// describe names a kind, with its version if the policy matches another of that name.
func (f *findings) describe(kind Kind) string {
	for _, other := range f.kinds {
		if other.Kind == kind.Kind && other.GroupVersionKind != kind.GroupVersionKind {
			return kind.Kind + " in " + kind.GroupVersion().String()
		}
	}
	return kind.Kind
}

// warnings are in the order of the expressions.
func (f *findings) warnings(expressions []expression) []advice.Warning {
	var out []advice.Warning
	for _, e := range expressions {
		for _, found := range f.all {
			if found.field == e.field {
				out = append(out, advice.Warning{Field: found.field, Text: found.String()})
			}
		}
	}
	return out
}

// String is the text of a warning.
func (f finding) String() string {
	last := len(f.kinds) - 1
	subject, verb := f.kinds[last], "has"
	if last > 0 {
		subject, verb = strings.Join(f.kinds[:last], ", ")+" and "+subject, "have"
	}
	if f.fields {
		return fmt.Sprintf("%s %s no field %s", subject, verb, f.text)
	}
	return fmt.Sprintf("for %s: %s", subject, f.text)
}
