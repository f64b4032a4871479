package classic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/pattern"
	"github.com/ostiary/ostiary/internal/migrate/mergeschema"
)

// mergeSchema returns how API servers merge the objects that the rule matches.
func (m *ruleMatching) mergeSchema() mergeschema.Schema {
	var kinds []schema.GroupVersionKind
	for _, k := range m.kinds {
		if strings.Contains(k.resource, "/") {
			return mergeschema.OfKinds(schema.GroupVersionKind{})
		}
		if !slices.Contains(kinds, k.GroupVersionKind) {
			kinds = append(kinds, k.GroupVersionKind)
		}
	}
	return mergeschema.OfKinds(kinds...)
}

// needsJSONPatch reports whether an apply configuration cannot express a patch: it deletes
// something, changes what API servers replace as a whole, adds elements in front of a list,
// has variables in keys, or is about fields whose schema is not known.
//
// The check of atomic fields is that of MutatingAdmissionPolicies, which refuse apply
// configurations with such fields.
func needsJSONPatch(patch any, shape ce.Shape, s mergeschema.Schema) bool {
	if patch == nil || !s.IsKnown() || s.IsAtomic() {
		return true
	}
	p, isMap := patch.(map[string]any)
	if !isMap {
		return false
	}
	for key, value := range p {
		modifier, name, anchor := pattern.Anchor(key)
		if anchor && modifier != "+" {
			continue
		}
		field := s.Field(name)
		list, isList := value.([]any)
		switch {
		case strings.Contains(key, "{{"):
			return true
		case isList:
			if changesListAsWhole(list, name, shape, field) {
				return true
			}
		case needsJSONPatch(value, shape.Field(name), field):
			return true
		}
	}
	return false
}

// changesListAsWhole reports whether a list is not one of objects with names of which
// conditions select some.
func changesListAsWhole(list []any, name string, shape ce.Shape, s mergeschema.Schema) bool {
	if key, merges := shape.MergesList(name); !merges || key != "name" || !slices.Equal(s.Keys(), []string{"name"}) {
		return true
	}
	return slices.ContainsFunc(list, func(element any) bool {
		p, _ := element.(map[string]any)
		return p == nil || p["name"] != nil || needsJSONPatch(p, shape.Field(name).Element(), s.Element())
	})
}

// jsonMerge converts a strategic merge patch to operations of a JSON patch. Like Kyverno's, it
// adds elements in front of lists.
type jsonMerge struct {
	anchors
	scope *conditions.Scope
}

// object returns the operations for the members of a map.
func (m *jsonMerge) object(
	patch map[string]any,
	at ce.Place,
	s mergeschema.Schema,
	path patchPath,
) (parts patchParts, err error) {
	if err := withoutDirectives(patch); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		modifier, name, anchor := pattern.Anchor(key)
		field := at.Field(name)
		var found patchParts
		switch {
		case anchor && (modifier == "" || modifier == "<"):
			err = m.addCondition(modifier, patch[key], field)
		case anchor && modifier != "+":
			err = fmt.Errorf("the anchor %s() is left out: a patch has no such anchor", modifier)
		case strings.Contains(name, "{{") && anchor:
			err = fmt.Errorf("an anchor of a key with a variable is left out: use patchesJson6902")
		case strings.Contains(name, "{{"):
			found, err = m.variableKey(name, patch[key], at, path)
		default:
			found, err = m.member(patch[key], at, name, s, path.field(name))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if anchor {
			found = found.onlyIf(ce.Not(field.Present()))
		}
		parts = append(parts, found...)
	}
	return parts, nil
}

// variableKey returns the operation for an entry of a map whose key has variables.
func (m *jsonMerge) variableKey(key string, patch any, at ce.Place, path patchPath) (patchParts, error) {
	if at.Shape.IsStruct() {
		return nil, fmt.Errorf("the name of a field with a variable is left out: write the name")
	}
	if hasAnchors(patch) {
		return nil, fmt.Errorf("anchors below a key with a variable are left out: use patchesJson6902")
	}
	name, err := keyOf(m.scope, key)
	if err != nil {
		return nil, err
	}
	value, err := valueOf(m.scope, patch)
	return patchParts{addition(path.variable(name), value)}, err
}

// member returns the operations for a member of a map.
func (m *jsonMerge) member(
	patch any,
	parent ce.Place,
	name string,
	s mergeschema.Schema,
	path patchPath,
) (patchParts, error) {
	at := parent.Field(name)
	switch p := patch.(type) {
	case nil:
		return patchParts{{condition: at.Present(), operation: path.operation("remove", ce.Expression{})}}, nil
	case map[string]any:
		inner, err := m.object(p, at, s.Field(name), path)
		if err != nil || len(inner) == 0 && len(p) > 0 { // conditions only
			return nil, err
		}
		if !at.Optional() {
			return inner, nil
		}
		return append(addition(path, ce.Term("{}")).onlyIf(ce.Not(at.Present())), inner...), nil
	case []any:
		key, merges := parent.Shape.MergesList(name)
		if keys := s.Field(name).Keys(); merges && len(keys) > 0 {
			if key = keys[0]; len(keys) > 1 {
				key = ""
			}
		}
		switch {
		case merges && key == "":
			return nil, fmt.Errorf("the list is merged by several fields or by its values: use patchesJson6902")
		case merges:
			return m.list(p, at, s.Field(name).Element(), path, name, key)
		case slices.ContainsFunc(p, hasAnchors):
			return nil, fmt.Errorf("anchors in a list that is not merged are left out: use patchesJson6902")
		}
	}
	value, err := valueOf(m.scope, patch)
	return patchParts{addition(path, value)}, err
}

// list returns the operations for the elements of a list that a field identifies. Those for
// existing elements come first, because additions in front change their indexes.
func (m *jsonMerge) list(
	patch []any,
	at ce.Place,
	s mergeschema.Schema,
	path patchPath,
	name, key string,
) (patchParts, error) {
	elements := listElements{
		jsonMerge: m, name: name, at: at, schema: s, path: path, key: key,
		item: ce.Singular(name, "item"), index: path.index(),
	}
	var changes, additions patchParts
	for i, element := range patch {
		p, ok := element.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("[%d]: the element is no map", i)
		}
		changed, added, err := elements.element(p)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		changes = append(changes, changed...)
		additions = append(added, additions...) // the first is added last, so that it comes first
	}
	if len(additions) > 0 && at.Optional() {
		additions = append(addition(path, ce.Term("[]")).onlyIf(ce.Not(at.Present())), additions...)
	}
	return append(changes, additions...), nil
}

// listElements are the elements of a list that a patch changes.
type listElements struct {
	*jsonMerge
	name        string
	at          ce.Place
	schema      mergeschema.Schema
	path        patchPath
	key         string
	item, index string // the variables of an element
}

// element returns the operations for one element of the patch: about the elements that it
// changes, and the one that it adds.
func (l *listElements) element(patch map[string]any) (changes, additions patchParts, err error) {
	id, isNamed := patch[l.key]
	if text, isText := id.(string); isText && strings.Contains(text, "{{") {
		return nil, nil, fmt.Errorf("the %s with a variable is left out: use (%s)", l.key, l.key)
	}
	if isNamed && hasAnchors(patch) { // Kyverno changes all elements then
		return nil, nil, fmt.Errorf("an anchor beside or below a %s is left out: use (%s)", l.key, l.key)
	}
	rest := maps.Clone(patch)
	delete(rest, l.key)
	inner := &jsonMerge{scope: l.scope}
	place := ce.VariablePlace(l.item, l.at.Shape.Element())
	parts, err := inner.object(rest, place, l.schema, l.path.element(l.index))
	switch {
	case err != nil:
		return nil, nil, err
	case isNamed:
		return l.named(patch, id, place, parts)
	}
	isGlobal, err := l.addElement(&inner.anchors, l.at, l.item)
	if err == nil && l.key != "name" && !isGlobal && len(parts) > 0 {
		err = fmt.Errorf("conditional anchors in a list without names have no effect: add %s", l.key)
	}
	if err != nil || isGlobal {
		return nil, nil, err
	}
	where := inner.where(l.item)
	noteAbsent(l.scope, l.name, patch)
	if !where.IsTrue() && len(parts) > 0 {
		noteOrder(l.scope, l.name)
	}
	return l.each(where, parts), nil, nil
}

// named returns the operations for the element with a name, and one that adds it if there is
// none.
func (l *listElements) named(
	patch map[string]any,
	id any,
	place ce.Place,
	parts patchParts,
) (changes, additions patchParts, err error) {
	value, err := valueOf(l.scope, patch)
	if err != nil {
		return nil, nil, err
	}
	literal, err := valueOf(l.scope, id)
	if err != nil {
		return nil, nil, err
	}
	noteOrder(l.scope, l.name)
	isElement := ce.Relate(place.Field(l.key).Or(`""`), "==", literal)
	absent := ce.Not(ce.Macro(l.at.Or("[]"), "exists", l.item, isElement))
	return l.each(isElement, parts), addition(l.path.field("0"), value).onlyIf(absent), nil
}

// each returns operations for each element that satisfies a condition.
func (l *listElements) each(where ce.Expression, parts patchParts) patchParts {
	if len(parts) == 0 {
		return nil
	}
	elements, result := l.at.Or("[]"), parts.list()
	single := len(parts) == 1 && parts[0].operation != ""
	if single {
		where, result = ce.And(where, parts[0].condition), ce.Term(parts[0].operation)
	}
	arguments := []ce.Expression{ce.Term(l.index), ce.Term(l.item)}
	if !where.IsTrue() {
		arguments = append(arguments, where)
	}
	e := ce.Call(elements, "transformList", append(arguments, result)...)
	if !single {
		e = ce.Call(e, "flatten")
	}
	return patchParts{{raw: e}}
}
