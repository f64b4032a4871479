package classic

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/pattern"
)

// eachElement is a patch for the elements of a list.
type eachElement struct {
	list    ce.Place
	item    string // the variable with an element
	scope   *conditions.Scope
	applies ce.Expression
}

// mutateEach converts a patch for the elements of a list.
func (v *ruleConverter) mutateEach(f forEachMutation) error {
	if f.ForEach != nil {
		return fmt.Errorf("foreach in foreach is left out: use two rules")
	}
	value, err := v.scope.JMESPath(f.List)
	if err != nil {
		return err
	}
	if lists := value.JoinedFields(); len(lists) > 0 {
		return v.mutateJoined(f, lists)
	}
	e, err := v.eachElement(f)
	if err != nil {
		return err
	}
	if f.PatchStrategicMerge != nil {
		if err := v.mergeEach(e, f.PatchStrategicMerge); err != nil {
			return fmt.Errorf("patchStrategicMerge: %w", err)
		}
		return nil
	}
	patch, err := e.jsonPatch(f)
	if err != nil {
		return fmt.Errorf("patchesJson6902: %w", err)
	}
	v.addPatch(patch)
	return nil
}

func (v *ruleConverter) eachElement(f forEachMutation) (*eachElement, error) {
	value, err := v.scope.JMESPath(f.List)
	if err != nil {
		return nil, err
	}
	list, ok := value.ListField()
	if !ok {
		return nil, fmt.Errorf("the list %q is left out: it must be a field of the object", f.List)
	}
	// A projection of an absent list is empty, and API servers accept no Pod without containers.
	if list.Optional() && list.Name() != "containers" && !strings.ContainsAny(f.List, "[|") {
		note := "an object without " + list.Name() + " stays as it is: Kyverno denies it"
		if !slices.Contains(v.notes, note) {
			v.notes = append(v.notes, note)
		}
	}
	e := &eachElement{list: list, item: ce.Singular(list.Name(), "item"), applies: ce.True()}
	element := conditions.Field(ce.VariablePlace(e.item, list.Shape.Element()))
	scope := v.scope.With("element", element).With("element0", element).With("elementIndex", conditions.Index("i"))
	scope.List = strings.TrimSpace(f.List)
	if e.scope, err = v.withContext(scope, f.Context); err != nil {
		return nil, err
	}
	if f.Preconditions != nil {
		applies, err := e.scope.Block(*f.Preconditions)
		if err != nil {
			return nil, fmt.Errorf("preconditions: %w", err)
		}
		e.applies = applies.Expression
	}
	return e, nil
}

// Errors about patches of elements.
var (
	errNoField     = errors.New("global anchors, and patches without a field, are left out")
	errAnotherList = errors.New("the patch of another list than that of foreach is left out: use a rule of its own")
)

var elementName = regexp.MustCompile(`^\{\{\s*element0?\.name\s*\}\}$`)

// mergeEach converts a strategic merge patch of the element with its own name.
func (v *ruleConverter) mergeEach(e *eachElement, patch any) error {
	typeName, element, err := e.named(patch)
	if err != nil {
		return err
	}
	s, path := v.matching.mergeSchema(), patchPath{}
	for _, name := range strings.Split(typeName, ".")[1:] {
		s, path = s.Field(name), path.field(name)
	}
	if !slices.Equal(s.Keys(), []string{"name"}) {
		return errAnotherList
	}
	if !e.applies.IsTrue() || hasAnchors(element) {
		noteOrder(e.scope, e.list.Name())
	}
	if !needsJSONPatch(element, e.list.Shape.Element(), s.Element()) {
		configuration, err := e.configuration(typeName, element)
		if err == nil {
			v.addConfiguration(configuration)
		}
		return err
	}
	l := &listElements{at: e.list, item: e.item, index: "i"}
	m := &jsonMerge{scope: e.scope}
	place := ce.VariablePlace(e.item, e.list.Shape.Element())
	parts, err := m.object(element, place, s.Element(), path.element(l.index))
	if err != nil {
		return err
	}
	if len(m.global) > 0 || len(parts) == 0 {
		return errNoField
	}
	v.addPatch(l.each(ce.And(append(m.conditions, e.applies)...), parts).list())
	return nil
}

// configuration returns the apply configuration for the elements.
func (e *eachElement) configuration(typeName string, element map[string]any) (ce.Expression, error) {
	inner := &configuration{scope: e.scope}
	object, err := inner.object(element, ce.VariablePlace(e.item, e.list.Shape.Element()), typeName)
	if err != nil {
		return object, err
	}
	if len(inner.global) > 0 || object.String() == "" {
		return object, errNoField
	}
	text := strings.Replace(object.String(), typeName+"{", typeName+"{name: "+e.item+".name, ", 1)
	list := e.mapped("map", ce.And(append(inner.conditions, e.applies)...), ce.Term(text))
	for _, name := range slices.Backward(strings.Split(typeName, ".")[1:]) {
		typeName = strings.TrimSuffix(typeName, "."+name)
		list = ce.Term(typeName + "{" + name + ": " + list.String() + "}")
	}
	return list, nil
}

// named returns the patch of the element with its own name, without the name, and the type
// of the element.
func (e *eachElement) named(patch any) (typeName string, element map[string]any, err error) {
	typeName, path := "Object", ""
	for {
		m, ok := patch.(map[string]any)
		if !ok || len(m) != 1 {
			return "", nil, fmt.Errorf(
				"a patch of something besides the elements of the list is left out: use a rule of its own",
			)
		}
		key := slices.Collect(maps.Keys(m))[0]
		typeName += "." + key
		path += "." + key
		patch = m[key]
		if _, isList := patch.([]any); isList {
			break
		}
	}
	elements, _ := patch.([]any)
	if len(elements) != 1 || e.list.Strict().String() != "object"+path {
		return "", nil, errAnotherList
	}
	given, ok := elements[0].(map[string]any)
	if !ok {
		return "", nil, fmt.Errorf("the element is no map")
	}
	element, err = withoutName(given)
	return typeName, element, err
}

func withoutName(given map[string]any) (map[string]any, error) {
	element := maps.Clone(given)
	for key, value := range given {
		if _, name, _ := pattern.Anchor(key); name != "name" && key != "name" {
			continue
		}
		if text, ok := value.(string); !ok || !elementName.MatchString(text) {
			return nil, fmt.Errorf("the name of the element is not {{ element.name }}: this is left out")
		}
		delete(element, key)
	}
	return element, nil
}

// mapped returns list.macro(variables..., applies, e).
func (e *eachElement) mapped(macro string, applies, each ce.Expression) ce.Expression {
	arguments := []ce.Expression{ce.Term(e.item)}
	if macro == "transformList" {
		arguments = []ce.Expression{ce.Term("i"), ce.Term(e.item)}
	}
	if !applies.IsTrue() {
		arguments = append(arguments, applies)
	}
	return ce.Call(e.list.Or("[]"), macro, append(arguments, each)...)
}

// jsonPatch converts a JSON patch whose paths have the index of the element.
func (e *eachElement) jsonPatch(f forEachMutation) (ce.Expression, error) {
	var operations []patchStep
	if err := yaml.UnmarshalStrict([]byte(f.PatchesJSON6902), &operations); err != nil {
		return ce.False(), fmt.Errorf("the patch is no list of operations: %w", err)
	}
	if len(operations) == 1 && operations[0].Op == "remove" {
		return e.removal(operations[0], f.Order)
	}
	var parts []string
	ensured := map[string]bool{}
	for i, o := range operations {
		found, err := e.operation(o, ensured)
		if err != nil {
			return ce.False(), fmt.Errorf("[%d]: %w", i, err)
		}
		parts = append(parts, found...)
	}
	return ce.Raw(strings.Join(parts, " + "), ce.Addition), nil
}

// operation returns lists with an operation for each element. Before what it adds, it adds
// absent parents, each once.
func (e *eachElement) operation(o patchStep, ensured map[string]bool) ([]string, error) {
	before, after, found := strings.Cut(o.Path, "}}")
	segments := strings.Split(strings.TrimPrefix(after, "/"), "/")
	if !found || !strings.Contains(before, "elementIndex") || strings.Contains(after, "{{") || o.Op != "add" &&
		o.Op != "replace" ||
		slices.ContainsFunc(segments[:len(segments)-1], indexPattern.MatchString) {
		return nil, fmt.Errorf(
			"the operation %s of the path %q is left out: only members of the element can be added or replaced",
			o.Op,
			o.Path,
		)
	}
	index, err := e.scope.Text(before + "}}")
	if err != nil {
		return nil, err
	}
	path, err := index.Source()
	if err != nil {
		return nil, err
	}
	value, err := valueOf(e.scope, o.Value)
	if err != nil {
		return nil, err
	}
	patch := func(op, suffix string, applies ce.Expression, value string) string {
		at := path
		if suffix != "" {
			at = ce.Raw(path.In(ce.Addition)+" + "+ce.Quote(suffix).String(), ce.Addition)
		}
		text := "JSONPatch{op: " + ce.Quote(op).String() + ", path: " + at.String() + ", value: " + value + "}"
		return e.mapped("transformList", ce.And(e.applies, applies), ce.Term(text)).String()
	}
	var parts []string
	at, suffix := ce.VariablePlace(e.item, e.list.Shape.Element()), ""
	for _, s := range segments[:len(segments)-1] {
		at, suffix = pointerStep(at, s), suffix+"/"+s
		if o.Op == "add" && !ensured[suffix] {
			ensured[suffix] = true
			parts = append(parts, patch("add", suffix, ce.Not(at.Present()), "{}"))
		}
	}
	return append(parts, patch(o.Op, after, ce.True(), value.String())), nil
}

// removal replaces the list by one without the elements that it removes.
func (e *eachElement) removal(o patchStep, order string) (ce.Expression, error) {
	before, after, _ := strings.Cut(o.Path, "{{")
	path := strings.TrimSuffix(before, "/")
	if strings.TrimSpace(strings.TrimSuffix(after, "}}")) != "elementIndex" ||
		e.list.Strict().String() != "object"+strings.ReplaceAll(path, "/", ".") {
		return ce.False(), fmt.Errorf(
			"the removal of the path %q is left out: only the element itself can be removed",
			o.Path,
		)
	}
	if order != "Descending" {
		return ce.False(), fmt.Errorf(
			"the removal of elements in ascending order is left out: the indexes of later elements change; add " +
				"order: Descending",
		)
	}
	elements := e.list.Or("[]")
	patch := patchList("replace", path, ce.Macro(elements, "filter", e.item, ce.Not(e.applies)))
	return ce.If(ce.Macro(elements, "exists", e.item, e.applies), ce.Term(patch), ce.Term("[]")), nil
}
