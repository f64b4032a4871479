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
	a := &configuration{scope: v.scope, root: object, path: []string{}}
	e, err := a.object(patch, object, "Object")
	if err != nil {
		return fmt.Errorf("mutate.patchStrategicMerge: %w", err)
	}
	applies := ce.And(append(a.conditions, a.global...)...)
	if e.String() != "" {
		v.addConfiguration(ce.If(applies, e, ce.Term("Object{}")))
	}
	for _, p := range a.patches {
		v.addPatch(ce.If(applies, p, ce.Term("[]")))
	}
	return nil
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

// configuration converts a strategic merge patch to an apply configuration, and parts that
// this cannot express to JSON patches.
type configuration struct {
	scope      *conditions.Scope
	conditions []ce.Expression // of the object that the configuration is about
	global     []ce.Expression // of the whole patch
	patches    []ce.Expression
	root       ce.Place // the object of the patch
	path       []string // from the root; nil in an element of a list
}

// mergeKey returns the field by which API servers merge the elements of a list; empty if
// they replace the list.
func mergeKey(list string) string {
	switch list {
	case "containers", "initContainers", "ephemeralContainers", "volumes", "env", "imagePullSecrets":
		return "name"
	case "volumeMounts":
		return "mountPath"
	case "volumeDevices":
		return "devicePath"
	}
	return ""
}

// object returns an object of the patch.
func (a *configuration) object(patch map[string]any, at ce.Place, typeName string) (ce.Expression, error) {
	var fields []string
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		modifier, name, anchor := pattern.Anchor(key)
		field := at.Field(name)
		if anchor && (modifier == "" || modifier == "<") {
			if err := a.condition(modifier, patch[key], field); err != nil {
				return ce.False(), fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if anchor && modifier != "+" {
			return ce.False(), fmt.Errorf(
				"%s: the anchor %s() is left out: apply configurations have no counterpart",
				name,
				modifier,
			)
		}
		value, err := a.member(patch[key], field, typeName, name, anchor)
		if err != nil {
			return ce.False(), fmt.Errorf("%s: %w", name, err)
		}
		if value.String() == "" {
			continue
		}
		fields = append(fields, patchField(name, value, field, anchor, isPlainMap(at)))
	}
	if len(fields) == 0 && len(patch) > 0 { // conditions only
		return ce.Term(""), nil
	}
	literal := "{" + strings.Join(fields, ", ") + "}"
	if isPlainMap(at) {
		return ce.Term(literal), nil
	}
	return ce.Term(typeName + literal), nil
}

func isPlainMap(at ce.Place) bool { return at.Shape.IsPlainMap() }

// patchField returns a field of an object, or an entry of a map. Unless it exists, if it is
// added only then.
func patchField(name string, value ce.Expression, field ce.Place, ifAbsent, plain bool) string {
	key := name
	if plain {
		key = ce.Quote(name).String()
	} else if !ce.IsIdentifier(name) {
		key = "`" + name + "`"
	}
	if !ifAbsent {
		return key + ": " + value.String()
	}
	return "?" + key + ": " + ce.If(
		field.Present(),
		ce.Term("optional.none()"),
		ce.Function("optional.of", value),
	).String()
}

// condition adds a condition: of the object, or with the global anchor of the whole patch.
func (a *configuration) condition(modifier string, p any, at ce.Place) error {
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

// member returns a field of the patch. Empty is one that JSON patches change: a deletion,
// and a list that API servers replace.
func (a *configuration) member(patch any, at ce.Place, typeName, name string, ifAbsent bool) (ce.Expression, error) {
	list, isList := patch.([]any)
	replaces := isList && mergeKey(name) == ""
	if patch != nil && !replaces || a.path == nil {
		inner := *a
		if a.path != nil {
			inner.path = append(slices.Clip(a.path), name)
		}
		e, err := inner.value(patch, at, typeName, name)
		a.conditions = inner.conditions
		a.global = inner.global
		a.patches = inner.patches
		return e, err
	}
	segments := make([]string, 0, len(a.path)+1)
	for _, s := range append(slices.Clip(a.path), name) {
		segments = append(segments, strings.NewReplacer("~", "~0", "/", "~1").Replace(s))
	}
	o := patchStep{Op: "remove", Path: "/" + strings.Join(segments, "/")}
	if replaces {
		if slices.ContainsFunc(list, hasAnchors) {
			return ce.False(), fmt.Errorf("anchors in a list that is not merged are left out: use patchesJson6902")
		}
		o.Op, o.Value = "add", patch
	}
	parts, err := patchOperation(a.scope, o, a.root, map[string]bool{"/metadata": true})
	if err != nil {
		return ce.False(), err
	}
	e := ce.Raw(strings.Join(parts, " + "), ce.Addition)
	if ifAbsent {
		e = ce.If(at.Present(), ce.Term("[]"), e)
	}
	a.patches = append(a.patches, e)
	return ce.Term(""), nil
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

func (a *configuration) value(patch any, at ce.Place, typeName, name string) (ce.Expression, error) {
	switch p := patch.(type) {
	case nil:
		return ce.False(), fmt.Errorf("the deletion with null is left out: use patchesJson6902")
	case map[string]any:
		if slices.ContainsFunc(slices.Collect(maps.Keys(p)), func(k string) bool { return strings.HasPrefix(k, "$") }) {
			return ce.False(), fmt.Errorf("the directives of strategic merge patches are left out: use patchesJson6902")
		}
		return a.object(p, at, typeName+"."+name)
	case []any:
		return a.list(p, at, typeName+"."+name, name)
	}
	return valueOf(a.scope, patch)
}

// list returns the elements of a list that is merged by name.
func (a *configuration) list(patch []any, at ce.Place, typeName, name string) (ce.Expression, error) {
	if mergeKey(name) == "" {
		return ce.False(), fmt.Errorf(
			"the patch of a list that is replaced, in an element of another list, is left out: use patchesJson6902",
		)
	}
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

// element returns the elements of a list that one element of the patch changes: that with
// its name, or those that match its conditional anchors. An element with global anchors
// changes none: the whole patch has an effect only if an element matches them.
func (a *configuration) element(patch map[string]any, at ce.Place, typeName, list string) (ce.Expression, error) {
	key := mergeKey(list)
	if name, ok := patch[key].(string); ok {
		return a.named(patch, name, at, typeName)
	}
	item := ce.Singular(list, "item")
	element := ce.VariablePlace(item, at.Shape.Element())
	inner := &configuration{scope: a.scope}
	e, err := inner.object(patch, element, typeName)
	if err != nil {
		return e, err
	}
	if len(inner.global) > 0 {
		some := ce.Macro(at.Or("[]"), "exists", item, ce.And(append(inner.global, inner.conditions...)...))
		none := ce.Relate(ce.Call(at.Or("[]"), "size"), "==", ce.Term("0"))
		a.global = append(a.global, at.Present(), ce.Or(none, some))
		return ce.Term(""), nil
	}
	if len(inner.conditions) == 0 {
		return e, fmt.Errorf("the element has neither a %s nor a conditional anchor: add (%s): \"*\"", key, key)
	}
	if e.String() == "" {
		return e, nil
	}
	if key != "name" {
		return e, fmt.Errorf("conditional anchors in a list without names have no effect: add %s", key)
	}
	text := strings.Replace(e.String(), typeName+"{", typeName+"{name: "+item+".name, ", 1)
	elements := at.Or("[]")
	if where := ce.And(inner.conditions...); !where.IsTrue() && where.String() != "has("+item+".name)" {
		elements = ce.Macro(elements, "filter", item, where)
	}
	return ce.Macro(elements, "map", item, ce.Term(strings.Replace(text, ", }", "}", 1))), nil
}

// named returns the element with a name. What it adds only if it is absent is looked up in
// the element of the object.
func (a *configuration) named(patch map[string]any, name string, at ce.Place, typeName string) (ce.Expression, error) {
	for key := range patch {
		if modifier, _, anchor := pattern.Anchor(key); anchor {
			return ce.False(), fmt.Errorf("the anchor %s() beside a name is left out: use (name)", modifier)
		}
	}
	if strings.Contains(name, "{{") {
		return ce.False(), fmt.Errorf("the name with a variable is left out: use (name)")
	}
	inner := &configuration{scope: a.scope}
	e, err := inner.object(patch, ce.VariablePlace("object", at.Shape.Element()), typeName)
	return ce.List(e), err
}

// valueOf returns a value of a patch, whose texts may have variables.
func valueOf(scope *conditions.Scope, v any) (ce.Expression, error) {
	switch typed := v.(type) {
	case map[string]any:
		var entries []string
		for _, key := range slices.Sorted(maps.Keys(typed)) {
			e, err := valueOf(scope, typed[key])
			if err != nil {
				return e, err
			}
			entries = append(entries, ce.Quote(key).String()+": "+dynamicElement(e, len(typed)))
		}
		return ce.Term("{" + strings.Join(entries, ", ") + "}"), nil
	case []any:
		var elements []string
		for _, element := range typed {
			e, err := valueOf(scope, element)
			if err != nil {
				return e, err
			}
			elements = append(elements, dynamicElement(e, len(typed)))
		}
		return ce.Term("[" + strings.Join(elements, ", ") + "]"), nil
	}
	value, err := scope.Any(v)
	if err != nil {
		return ce.False(), err
	}
	return value.Source()
}

// dynamicElement makes the values of a literal ones of the same type for the type checker.
func dynamicElement(e ce.Expression, n int) string {
	if n == 1 || strings.HasPrefix(e.String(), `"`) {
		return e.String()
	}
	return "dyn(" + e.String() + ")"
}
