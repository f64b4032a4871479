package classic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/pattern"
)

// mutate converts a mutation.
func (v *ruleConverter) mutate(m *mutation) error {
	object := ce.ObjectPlace("object", v.matching.object.Shape)
	switch {
	case len(m.ForEach) > 0:
		for i, f := range m.ForEach {
			if err := v.mutateEach(f); err != nil {
				return fmt.Errorf("mutate.foreach[%d]: %w", i, err)
			}
		}
		return nil
	case m.PatchesJSON6902 != "":
		e, err := v.jsonPatch(v.scope, m.PatchesJSON6902, object)
		if err != nil {
			return fmt.Errorf("mutate.patchesJson6902: %w", err)
		}
		v.addPatch(e)
		return nil
	case m.PatchStrategicMerge == nil:
		return &leftOutError{
			"mutate",
			"the rule has none of patchStrategicMerge, patchesJson6902 and foreach",
			"add one, or remove the rule",
		}
	}
	patch, ok := m.PatchStrategicMerge.(map[string]any)
	if !ok {
		return &leftOutError{"mutate.patchStrategicMerge", "the patch is no map", "correct it"}
	}
	if err := v.mergePatch(patch, object); err != nil {
		return fmt.Errorf("mutate.patchStrategicMerge: %w", err)
	}
	return nil
}

// mergePatch converts a strategic merge patch: to an apply configuration if API servers merge
// all of its parts, and otherwise to a JSON patch.
func (v *ruleConverter) mergePatch(patch map[string]any, object ce.Place) error {
	s := v.matching.mergeSchema()
	if needsJSONPatch(patch, object.Shape, s) {
		m := &jsonMerge{scope: v.scope}
		parts, err := m.object(patch, object, s, patchPath{})
		if err != nil {
			return err
		}
		if len(parts) > 0 {
			v.addPatch(ce.If(ce.And(append(m.conditions, m.global...)...), parts.list(), ce.Term("[]")))
		}
		return nil
	}
	a := &configuration{scope: v.scope}
	e, err := a.object(patch, object, "Object")
	if err == nil && e.String() != "" {
		v.addConfiguration(ce.If(ce.And(append(a.conditions, a.global...)...), e, ce.Term("Object{}")))
	}
	return err
}

func (v *ruleConverter) addPatch(e ce.Expression) {
	v.out.mutations = append(v.out.mutations, admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{
			Expression: e.String(),
		},
	})
}

func (v *ruleConverter) addConfiguration(e ce.Expression) {
	v.out.mutations = append(v.out.mutations, admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
			Expression: e.String(),
		},
	})
}

// anchors are the conditions in a patch.
type anchors struct {
	conditions []ce.Expression // of the object that the patch is about
	global     []ce.Expression // of the whole patch
}

// configuration converts a strategic merge patch to an apply configuration.
type configuration struct {
	anchors
	scope *conditions.Scope
}

// object returns an object of the patch.
func (a *configuration) object(patch map[string]any, at ce.Place, typeName string) (ce.Expression, error) {
	var fields []patchMember
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		modifier, name, anchor := pattern.Anchor(key)
		field := at.Field(name)
		if anchor && (modifier == "" || modifier == "<") {
			if err := a.addCondition(modifier, patch[key], field); err != nil {
				return ce.False(), fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if anchor && modifier != "+" {
			return ce.False(), fmt.Errorf("%s: the anchor %s() is left out: a patch has no such anchor", name, modifier)
		}
		value, err := a.value(patch[key], field, typeName, name)
		if err != nil {
			return ce.False(), fmt.Errorf("%s: %w", name, err)
		}
		if value.String() == "" {
			continue
		}
		fields = append(fields, patchMember{name, value, field, anchor})
	}
	if len(fields) == 0 && len(patch) > 0 { // conditions only
		return ce.Term(""), nil
	}
	if isPlainMap(at) {
		unifyTypes(fields)
	}
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.source(isPlainMap(at))
	}
	literal := "{" + strings.Join(texts, ", ") + "}"
	if isPlainMap(at) {
		return ce.Term(literal), nil
	}
	return ce.Term(typeName + literal), nil
}

func isPlainMap(at ce.Place) bool { return at.Shape.IsPlainMap() }

// patchMember is a field of an object in a patch, or an entry of a map.
type patchMember struct {
	name     string
	value    ce.Expression
	field    ce.Place
	ifAbsent bool // it is added only then
}

// unifyTypes gives the entries of a map one type for the type checker, which accepts no map
// with a text beside a value of a type that it does not know.
func unifyTypes(entries []patchMember) {
	isText := func(m patchMember) bool { return m.value.IsText() }
	if len(entries) < 2 || !slices.ContainsFunc(entries, isText) {
		return
	}
	if !slices.ContainsFunc(entries, func(m patchMember) bool { return !isText(m) }) {
		return
	}
	for i := range entries {
		entries[i].value = ce.Function("dyn", entries[i].value)
	}
}

// source returns the field, or the entry of a map whose keys authors choose.
func (m *patchMember) source(plain bool) string {
	key := m.name
	if plain {
		key = ce.Quote(m.name).String()
	} else if !ce.IsIdentifier(m.name) {
		key = "`" + m.name + "`"
	}
	if !m.ifAbsent {
		return key + ": " + m.value.String()
	}
	return "?" + key + ": " + ce.If(
		m.field.Present(),
		ce.Term("optional.none()"),
		ce.Function("optional.of", m.value),
	).String()
}

// addCondition adds a condition: of the object, or with the global anchor of the whole patch.
func (a *anchors) addCondition(modifier string, p any, at ce.Place) error {
	if hasConditions(p) {
		return fmt.Errorf("conditional anchors in another one are left out: use preconditions")
	}
	e, err := pattern.Compile(p, at)
	if err != nil {
		return err
	}
	e = ce.And(at.Present(), e)
	if modifier == "<" {
		a.global = append(a.global, e)
	} else {
		a.conditions = append(a.conditions, e)
	}
	return nil
}

// hasConditions reports whether a pattern has anchors that are no comparison.
func hasConditions(p any) bool {
	switch typed := p.(type) {
	case map[string]any:
		for key, value := range typed {
			modifier, _, anchor := pattern.Anchor(key)
			if anchor && modifier != "=" && modifier != "X" || hasConditions(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(typed, hasConditions)
	}
	return false
}

func hasAnchors(p any) bool {
	switch typed := p.(type) {
	case map[string]any:
		for key, value := range typed {
			if _, _, anchor := pattern.Anchor(key); anchor || hasAnchors(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(typed, hasAnchors)
	}
	return false
}

// value returns a value of the patch; empty has conditions only.
func (a *configuration) value(patch any, at ce.Place, typeName, name string) (ce.Expression, error) {
	switch p := patch.(type) {
	case map[string]any:
		if err := withoutDirectives(p); err != nil {
			return ce.False(), err
		}
		return a.object(p, at, typeName+"."+name)
	case []any:
		return a.list(p, at, typeName+"."+name, name)
	}
	return valueOf(a.scope, patch)
}

// withoutDirectives returns an error for a patch with directives.
func withoutDirectives(patch map[string]any) error {
	for key := range patch {
		if strings.HasPrefix(key, "$") {
			return fmt.Errorf("the directives of strategic merge patches are left out: use patchesJson6902")
		}
	}
	return nil
}

// list returns the elements of a list that is merged by name.
func (a *configuration) list(patch []any, at ce.Place, typeName, name string) (ce.Expression, error) {
	var parts []string
	for i, element := range patch {
		p, ok := element.(map[string]any)
		if !ok {
			return ce.False(), fmt.Errorf("[%d]: the element is no map", i)
		}
		e, err := a.element(p, at, typeName, name)
		if err != nil {
			return ce.False(), fmt.Errorf("[%d]: %w", i, err)
		}
		if e.String() != "" {
			parts = append(parts, e.In(ce.Addition))
		}
	}
	return ce.Raw(strings.Join(parts, " + "), ce.Addition), nil
}

// element returns the elements of a list that match the conditional anchors of an element of
// the patch.
func (a *configuration) element(patch map[string]any, at ce.Place, typeName, list string) (ce.Expression, error) {
	item := ce.Singular(list, "item")
	inner := &configuration{scope: a.scope}
	e, err := inner.object(patch, ce.VariablePlace(item, at.Shape.Element()), typeName)
	if err != nil {
		return e, err
	}
	isGlobal, err := a.addElement(&inner.anchors, at, item)
	if err != nil || isGlobal || e.String() == "" {
		return ce.Term(""), err
	}
	noteAbsent(a.scope, list, patch)
	text := strings.Replace(e.String(), typeName+"{", typeName+"{name: "+item+".name, ", 1)
	elements := at.Or("[]")
	if where := inner.where(item); !where.IsTrue() {
		noteOrder(a.scope, list)
		elements = ce.Macro(elements, "filter", item, where)
	}
	return ce.Macro(elements, "map", item, ce.Term(strings.Replace(text, ", }", "}", 1))), nil
}

// addElement adds the conditions of an element of a list. An element with global anchors
// changes none: the whole patch has an effect only if an element matches them.
func (a *anchors) addElement(inner *anchors, at ce.Place, item string) (isGlobal bool, err error) {
	if len(inner.global) > 0 {
		some := ce.Macro(at.Or("[]"), "exists", item, ce.And(append(inner.global, inner.conditions...)...))
		none := ce.Relate(ce.Call(at.Or("[]"), "size"), "==", ce.Term("0"))
		a.global = append(a.global, at.Present(), ce.Or(none, some))
		return true, nil
	}
	if len(inner.conditions) == 0 {
		return false, fmt.Errorf("the element has neither a name nor a conditional anchor: add (name): \"*\"")
	}
	return false, nil
}

// where is the condition of an element. All elements have a name.
func (a *anchors) where(item string) ce.Expression {
	where := ce.And(a.conditions...)
	if where.String() == "has("+item+".name)" {
		return ce.True()
	}
	return where
}

// addsAbsent reports whether a patch adds a field only where it is absent.
func addsAbsent(p any) bool {
	switch typed := p.(type) {
	case map[string]any:
		for key, value := range typed {
			if modifier, _, anchor := pattern.Anchor(key); anchor && modifier == "+" || addsAbsent(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(typed, addsAbsent)
	}
	return false
}

// noteAbsent reports that Kyverno decides by the first element of a list which fields all elements lack.
func noteAbsent(scope *conditions.Scope, list string, patch any) {
	note := "a field with +() is added to each of the elements of " + list + " that lacks it: Kyverno decides by the " +
		"first one, and then replaces or adds it in all or none"
	if addsAbsent(patch) && !slices.Contains(*scope.Notes, note) {
		*scope.Notes = append(*scope.Notes, note)
	}
}

// noteOrder reports that a patch of some elements of a list has another order in Kyverno.
func noteOrder(scope *conditions.Scope, list string) {
	note := "elements of " + list + " that exist stay in their place: Kyverno moves those that it changes to the front"
	if !slices.Contains(*scope.Notes, note) {
		*scope.Notes = append(*scope.Notes, note)
	}
}

// valueOf returns a value of a patch, whose texts may have variables.
func valueOf(scope *conditions.Scope, v any) (ce.Expression, error) {
	switch typed := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(typed))
		values := make([]any, len(keys))
		for i, key := range keys {
			values[i] = typed[key]
		}
		entries, err := elementsOf(scope, values)
		if err != nil {
			return ce.False(), err
		}
		for i, key := range keys {
			name, err := keyOf(scope, key)
			if err != nil {
				return name, err
			}
			entries[i] = name.String() + ": " + entries[i]
		}
		return ce.Term("{" + strings.Join(entries, ", ") + "}"), nil
	case []any:
		elements, err := elementsOf(scope, typed)
		return ce.Term("[" + strings.Join(elements, ", ") + "]"), err
	}
	value, err := scope.Any(v)
	if err != nil {
		return ce.False(), err
	}
	return value.Source()
}

// elementsOf returns the elements of a literal, which have one type for the type checker.
func elementsOf(scope *conditions.Scope, values []any) ([]string, error) {
	texts := make([]string, len(values))
	same := true
	for i, v := range values {
		e, err := valueOf(scope, v)
		if err != nil {
			return nil, err
		}
		texts[i] = e.String()
		same = same && e.IsText()
	}
	if same || len(values) < 2 {
		return texts, nil
	}
	for i := range texts {
		texts[i] = "dyn(" + texts[i] + ")"
	}
	return texts, nil
}

// keyOf returns a key of a map in a patch, which may have variables.
func keyOf(scope *conditions.Scope, key string) (ce.Expression, error) {
	value, err := scope.Text(key)
	if err != nil {
		return ce.False(), err
	}
	return value.Source()
}
