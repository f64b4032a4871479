package rehearsal

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

const (
	separator = "\x00" // of the steps of a path
	element   = "[*]"  // the step to an element of a list

	maxSteps = 10_000 // in one expression with its variables
)

// valuesNamed are the values of fields that an expression names, in comparisons with constants.
type valuesNamed struct {
	readings *readings
	values   map[string][]any // by path
	prefixes map[string][]string
	inner    map[string][]string
	suffixes map[string][]string
	loops    map[string]int // over a list
	exists   bool           // a loop is true for one element
	steps    int
	// opaque reports that the expression reads a field in another way, so that the values that it
	// needs are not known.
	opaque bool
	// comparesFixed reports that the expression compares a part of the request that no client
	// chooses, such as request.operation.
	comparesFixed bool
	// negates reports that the expression contains ! or !=.
	negates bool
}

// valuesIn returns the values that an expression names; ok is false if they are not all that it
// reads.
func (r *readings) valuesIn(e *reading) (out *valuesNamed, ok bool) {
	if e.parsed == nil {
		return nil, false
	}
	out = &valuesNamed{readings: r, values: map[string][]any{}, prefixes: map[string][]string{},
		inner: map[string][]string{}, suffixes: map[string][]string{},
		loops: map[string]int{}}
	out.predicate(e.parsed.NativeRep().Expr(), terms{})
	for path := range out.values {
		out.addTexts(path)
	}
	for _, n := range out.loops { // the lists that are tried have one element
		out.opaque = out.opaque || n > 1 && (out.exists || out.negates)
	}
	return out, !out.opaque
}

// mayBeMistaken reports whether an expression that is always false is likely a mistake. Authors write
// the constant false, or request.operation != "DELETE" in a policy about deletions, on purpose.
func (v *valuesNamed) mayBeMistaken() bool { return len(v.values) > 0 || v.comparesFixed && !v.negates }

// combinations returns all objects with one of the values for each path; ok is false if there are
// too many.
func (v *valuesNamed) combinations() (out []combination, ok bool) {
	out = []combination{{}}
	for _, path := range slices.Sorted(maps.Keys(v.values)) {
		values := v.values[path]
		if len(out)*len(values) > maxCombinations {
			return nil, false
		}
		var next []combination
		for _, before := range out {
			for _, value := range values {
				c := maps.Clone(before)
				c[path] = value
				next = append(next, c)
			}
		}
		out = next
	}
	return out, true
}

// term is an operand: a path, or a constant.
type term struct {
	path     string
	constant any
	// fixed reports that no client chooses the value.
	fixed bool
}

// terms are the variables of loops.
type terms map[string]term

func (s terms) with(name string, t term) terms {
	out := terms{}
	maps.Copy(out, s)
	out[name] = t
	return out
}

func (v *valuesNamed) add(path string, values ...any) {
	known := v.values[path]
	if len(known) == 0 {
		known = []any{unchanged{}}
	}
	for _, value := range values {
		if len(known) > maxCombinations {
			v.opaque = true
			return
		}
		if !slices.ContainsFunc(known, func(k any) bool { return equalValues(k, value) }) {
			known = append(known, value)
		}
	}
	v.values[path] = known
}

func equalValues(a, b any) bool {
	switch a.(type) {
	case []any, map[string]any:
		return false
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// addTexts adds texts with the beginnings, parts and ends that an expression names for a path.
func (v *valuesNamed) addTexts(path string) {
	prefixes := append([]string{""}, v.prefixes[path]...)
	suffixes := append([]string{""}, v.suffixes[path]...)
	middle := strings.Join(v.inner[path], "")
	if len(prefixes)+len(suffixes) == 2 && middle == "" {
		return
	}
	for _, prefix := range prefixes {
		for _, suffix := range suffixes {
			if v.opaque {
				return
			}
			v.add(path, prefix+suffix, prefix+middle+suffix, prefix+"probe"+suffix)
		}
	}
}

// isBeyond reports whether an expression is not followed further: it is opaque, or too long
// together with the variables that it reads several times.
func (v *valuesNamed) isBeyond() bool {
	v.steps++
	v.opaque = v.opaque || v.steps > maxSteps
	return v.opaque
}

// predicate collects the values that decide a condition.
func (v *valuesNamed) predicate(e ast.Expr, s terms) {
	if v.isBeyond() {
		return
	}
	switch e.Kind() {
	case ast.LiteralKind:
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			v.presence(v.field(v.term(e.AsSelect().Operand(), s), e.AsSelect().FieldName()))
			return
		}
		if variable := v.variable(e); variable != nil {
			v.predicate(variable, s)
			return
		}
		v.compare(v.term(e, s), term{constant: true})
	case ast.IdentKind:
		v.compare(v.term(e, s), term{constant: true})
	case ast.CallKind:
		v.call(e, s)
	case ast.ComprehensionKind:
		v.loop(e.AsComprehension(), s)
	default:
		v.opaque = true
	}
}

// variable returns the expression of a variable, nil for another selection.
func (v *valuesNamed) variable(e ast.Expr) ast.Expr {
	operand := e.AsSelect().Operand()
	if operand.Kind() != ast.IdentKind || strings.TrimPrefix(operand.AsIdent(), ".") != "variables" {
		return nil
	}
	known := v.readings.variables[e.AsSelect().FieldName()]
	if known == nil || known.parsed == nil {
		return nil
	}
	return expressionIn(known.parsed)
}

func expressionIn(a *cel.Ast) ast.Expr { return a.NativeRep().Expr() }

func (v *valuesNamed) call(e ast.Expr, s terms) {
	c := e.AsCall()
	args := c.Args()
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.Conditional:
		for _, arg := range args {
			v.predicate(arg, s)
		}
	case operators.LogicalNot:
		v.negates = true
		v.predicate(args[0], s)
	case operators.Equals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		v.compare(v.term(args[0], s), v.term(args[1], s))
	case operators.NotEquals:
		v.negates = true
		v.compare(v.term(args[0], s), v.term(args[1], s))
	case operators.In:
		v.contains(v.term(args[0], s), v.term(args[1], s))
	case "startsWith", "endsWith", "contains":
		v.text(c.FunctionName(), v.term(c.Target(), s), v.term(args[0], s))
	case "hasValue":
		v.presence(v.term(c.Target(), s))
	case "orValue", operators.Index, operators.OptIndex, operators.OptSelect:
		v.compare(v.term(e, s), term{constant: true})
	default:
		v.opaque = true
	}
}

// compare adds the values with which a comparison has each of its results.
func (v *valuesNamed) compare(a, b term) {
	if a.path == "" {
		a, b = b, a
	}
	switch {
	case b.path != "" || b.constant == nil:
		v.opaque = true
	case a.fixed:
		v.comparesFixed = true
	case a.path != "":
		v.add(a.path, around(b.constant)...)
	}
}

// null is the value of the constant null. In a term, nil means that there is no constant.
type null struct{}

// around returns values that are equal to a constant, less, and greater.
func around(constant any) []any {
	switch c := constant.(type) {
	case string:
		return []any{c, c + "-probe"}
	case int64:
		return []any{c - 1, c, c + 1}
	case float64:
		return []any{c - 1, c, c + 1}
	case bool:
		return []any{true, false}
	case []any:
		return []any{c, []any{}}
	}
	return nil
}

func (v *valuesNamed) contains(value, list term) {
	elements, isList := list.constant.([]any)
	switch {
	case value.fixed && isList:
		v.comparesFixed = true
	case value.path != "" && isList:
		v.add(value.path, append(slices.Clone(elements), "probe")...)
	case list.path != "" && !list.fixed && value.path == "" && !value.fixed && value.constant != nil:
		v.add(list.path, []any{value.constant}, []any{"probe"}, []any{}, map[string]any{})
		if name, ok := value.constant.(string); ok {
			v.add(v.field(list, name).path, "probe")
		}
	case value.constant != nil && isList:
	default:
		v.opaque = true
	}
}

func (v *valuesNamed) text(function string, value, part term) {
	text, ok := part.constant.(string)
	if !ok || value.fixed || value.path == "" && value.constant == nil {
		v.opaque = true
		return
	}
	if value.path == "" {
		return
	}
	texts := v.inner
	switch function {
	case "startsWith":
		texts = v.prefixes
	case "endsWith":
		texts = v.suffixes
	}
	texts[value.path] = appendMissing(texts[value.path], text)
	v.add(value.path, "probe")
}

func (v *valuesNamed) presence(t term) {
	if t.path == "" || t.fixed {
		v.opaque = true
		return
	}
	v.add(t.path, absent{}, map[string]any{}, "probe")
}

// loop follows all() and exists() over a list of an object or over constants.
func (v *valuesNamed) loop(c ast.ComprehensionExpr, s terms) {
	step := c.LoopStep()
	isQuantifier := step.Kind() == ast.CallKind && c.IterVar2() == "" && c.AccuInit().Kind() == ast.LiteralKind &&
		(step.AsCall().FunctionName() == operators.LogicalAnd || step.AsCall().FunctionName() == operators.LogicalOr)
	if !isQuantifier {
		v.opaque = true
		return
	}
	condition := step.AsCall().Args()[1]
	v.exists = v.exists || step.AsCall().FunctionName() == operators.LogicalOr
	over := v.term(c.IterRange(), s)
	if elements, ok := over.constant.([]any); ok {
		for _, e := range elements {
			v.predicate(condition, s.with(c.IterVar(), term{constant: e}))
		}
		return
	}
	if over.path == "" || over.fixed {
		v.opaque = true
		return
	}
	v.loops[over.path]++
	v.add(over.path, []any{})
	v.predicate(condition, s.with(c.IterVar(), v.field(over, element)))
}

// term returns an operand. One that is neither a path nor a constant makes the expression opaque.
func (v *valuesNamed) term(e ast.Expr, s terms) term {
	if v.isBeyond() {
		return term{}
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return term{constant: constantOf(e)}
	case ast.ListKind:
		list := []any{}
		for _, one := range e.AsList().Elements() {
			t := v.term(one, s)
			_, isNull := t.constant.(null)
			v.opaque = v.opaque || t.constant == nil || isNull
			list = append(list, t.constant)
		}
		return term{constant: list}
	case ast.IdentKind:
		return v.input(strings.TrimPrefix(e.AsIdent(), "."), s)
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			break
		}
		if variable := v.variable(e); variable != nil {
			return v.term(variable, s)
		}
		return v.field(v.term(e.AsSelect().Operand(), s), e.AsSelect().FieldName())
	case ast.CallKind:
		return v.operand(e.AsCall(), s)
	}
	v.opaque = true
	return term{}
}

// operand is the term of a selection, with or without a default.
func (v *valuesNamed) operand(c ast.CallExpr, s terms) term {
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		at := v.term(c.Args()[0], s)
		if c.FunctionName() != operators.Index && at.path != "" && !at.fixed {
			v.add(at.path, absent{})
		}
		if name, ok := literal(c.Args()[1]); ok {
			return v.field(at, name)
		}
	case "orValue":
		t := v.term(c.Target(), s)
		if t.path != "" && !t.fixed {
			v.add(t.path, absent{})
		}
		if !isEmpty(c.Args()[0]) {
			v.term(c.Args()[0], s)
		}
		return t
	}
	v.opaque = true
	return term{}
}

func isEmpty(e ast.Expr) bool {
	return e.Kind() == ast.MapKind && e.AsMap().Size() == 0 || e.Kind() == ast.ListKind && e.AsList().Size() == 0
}

// input is the term of a variable of CEL.
func (v *valuesNamed) input(name string, s terms) term {
	if t, ok := s[name]; ok {
		return t
	}
	switch name {
	case "object", "oldObject":
		return term{path: name}
	case "request":
		return term{path: name, fixed: true}
	}
	v.opaque = true
	return term{}
}

// field is the term of a field. Parts of the request are constants, and the namespace of an object
// is that of the request.
func (v *valuesNamed) field(t term, name string) term {
	switch {
	case t.path == "":
		v.opaque = true
		return term{}
	case t.path == "request" && !slices.Contains([]string{"operation", "kind", "resource", "subResource"}, name):
		v.opaque = true
	case t.fixed && t.path == "request":
		return term{path: "request" + separator + name, fixed: true}
	}
	path := t.path + separator + name
	steps := strings.Split(path, separator)
	fixed := t.fixed || len(steps) == 2 && (name == "kind" || name == "apiVersion")
	if len(steps) == 3 && steps[1] == "metadata" && !slices.Contains([]string{"name", "labels", "annotations"}, name) {
		v.opaque = true // the API server sets it
	}
	return term{path: path, fixed: fixed}
}

// constantOf returns the value of a literal; nil if objects cannot have it.
func constantOf(e ast.Expr) any {
	switch c := e.AsLiteral().(type) {
	case types.String:
		return string(c)
	case types.Int:
		return int64(c)
	case types.Double:
		return float64(c)
	case types.Bool:
		return bool(c)
	case types.Null:
		return null{}
	}
	return nil
}
