package conditions

import (
	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// call is a call of a function. A null argument fails in JMESPath and in CEL.
type call struct {
	name      string
	scope     *Scope
	arguments []Value
	sources   []ce.Expression
}

// function converts the call of a function with an exact counterpart.
func (s *Scope) function(n jmespath.ASTNode, current *Value) (Value, error) {
	name, ok := n.Value.(string)
	if !ok { // the parser accepts @(x)
		return Value{}, leftOut("a JMESPath call of an expression, which is no function")
	}
	c := call{name: name, scope: s}
	build, known := functions()[c.name]
	if !known {
		return Value{}, leftOut("the JMESPath function %s()", c.name)
	}
	for _, child := range n.Children {
		v, err := s.compile(child, current)
		if err != nil {
			return Value{}, err
		}
		e, err := v.strict()
		if err != nil {
			return Value{}, err
		}
		c.arguments, c.sources = append(c.arguments, v), append(c.sources, e)
	}
	if len(c.arguments) != build.arguments {
		return Value{}, leftOut("the JMESPath function %s() with %d arguments", c.name, len(c.arguments))
	}
	return build.convert(c)
}

type converter struct {
	arguments int
	convert   func(call) (Value, error)
}

// functions are the functions of JMESPath and Kyverno that CEL has too.
func functions() map[string]converter {
	return map[string]converter{
		"length":        {1, size},
		"contains":      {2, contains},
		"keys":          {1, keys},
		"values":        {1, func(c call) (Value, error) { return values(c.arguments[0]) }},
		"starts_with":   {2, method("startsWith", ce.KindBool)},
		"ends_with":     {2, method("endsWith", ce.KindBool)},
		"split":         {2, split},
		"join":          {2, join},
		"to_upper":      {1, letters("upperAscii")},
		"to_lower":      {1, letters("lowerAscii")},
		"replace_all":   {3, method("replace", ce.KindString)},
		"trim_prefix":   {2, trimPrefix},
		"regex_match":   {2, regexMatch},
		"pattern_match": {2, patternMatch},
		"to_number":     {1, toNumber},
		"to_string":     {1, toString},
		"label_match":   {2, labelMatch},
		"lookup":        {2, lookup},
		"not_null":      {2, notNull},
		"add":           {2, arithmetic(" + ", ce.Addition)},
		"subtract":      {2, arithmetic(" - ", ce.Addition)},
		"multiply":      {2, arithmetic(" * ", ce.Multiplication)},
		"divide":        {2, divide},
		"modulo":        {2, modulo},
		"sum":           {1, aggregate("sum")},
		"max":           {1, aggregate("max")},
		"min":           {1, aggregate("min")},
		"abs":           {1, abs},
	}
}

func (c call) result(e ce.Expression, k ce.Kind) (Value, error) {
	return computed(e, ce.ShapeOfKind(k), c.arguments...), nil
}

func (c call) leftOut() (Value, error) {
	return Value{}, leftOut("the JMESPath function %s() with arguments of these types", c.name)
}

// are reports whether all arguments have one of some kinds.
func (c call) are(kinds ...ce.Kind) bool {
	for _, a := range c.arguments {
		found := false
		for _, k := range kinds {
			found = found || a.kind() == k
		}
		if !found {
			return false
		}
	}
	return true
}

// method is the call of a method of a string with string arguments. A value of unknown type
// fails in both languages if it is no string.
func method(name string, result ce.Kind) func(call) (Value, error) {
	return func(c call) (Value, error) {
		if !c.are(ce.KindString, ce.KindAny) {
			return c.leftOut()
		}
		return c.result(ce.Call(c.sources[0], name, c.sources[1:]...), result)
	}
}

// letters changes the case of letters.
func letters(name string) func(call) (Value, error) {
	return func(c call) (Value, error) {
		c.scope.note("%s() leaves letters outside of ASCII unchanged", c.name)
		return method(name, ce.KindString)(c)
	}
}

func size(c call) (Value, error) {
	if !c.are(ce.KindString, ce.KindList, ce.KindMap, ce.KindAny) {
		return c.leftOut()
	}
	return c.result(ce.Call(c.sources[0], "size"), ce.KindInt)
}

func contains(c call) (Value, error) {
	switch c.arguments[0].kind() {
	case ce.KindList:
		return c.result(ce.Relate(c.sources[1], "in", c.sources[0]), ce.KindBool)
	case ce.KindString:
		if c.arguments[1].kind() == ce.KindString || c.arguments[1].kind() == ce.KindAny {
			return c.result(ce.Call(c.sources[0], "contains", c.sources[1]), ce.KindBool)
		}
	}
	return c.leftOut()
}

func keys(c call) (Value, error) {
	if !c.are(ce.KindMap, ce.KindAny) {
		return c.leftOut()
	}
	return computed(ce.Macro(c.sources[0], "map", "key", ce.Term("key")), ce.ShapeOfList(ce.ShapeOfKind(ce.KindString)), c.arguments...), nil
}

func split(c call) (Value, error) {
	if !c.are(ce.KindString, ce.KindAny) {
		return c.leftOut()
	}
	return computed(ce.Call(c.sources[0], "split", c.sources[1]), ce.ShapeOfList(ce.ShapeOfKind(ce.KindString)), c.arguments...), nil
}

func join(c call) (Value, error) {
	if c.arguments[0].kind() != ce.KindString || c.arguments[1].kind() != ce.KindList {
		return c.leftOut()
	}
	return c.result(ce.Call(c.sources[1], "join", c.sources[0]), ce.KindString)
}

func trimPrefix(c call) (Value, error) {
	if !c.are(ce.KindString) {
		return c.leftOut()
	}
	text, prefix := c.sources[0], c.sources[1]
	return c.result(ce.If(ce.Call(text, "startsWith", prefix), ce.Call(text, "substring", ce.Call(prefix, "size")), text), ce.KindString)
}

// text returns an argument as Kyverno's functions for text read it.
func (c call) text(i int) (ce.Expression, bool) {
	switch c.arguments[i].kind() {
	case ce.KindString:
		return c.sources[i], true
	case ce.KindInt, ce.KindIntOrString, ce.KindQuantity:
		return ce.Function("string", c.sources[i]), true
	case ce.KindAny:
		return c.sources[i], true
	}
	return ce.False(), false
}

func regexMatch(c call) (Value, error) {
	text, ok := c.text(1)
	if !ok || c.arguments[0].kind() != ce.KindString {
		return c.leftOut()
	}
	return c.result(ce.Call(text, "matches", c.sources[0]), ce.KindBool)
}

func patternMatch(c call) (Value, error) {
	text, ok := c.text(1)
	constant, isText := c.arguments[0].constant.(string)
	if !ok || !isText {
		return c.leftOut()
	}
	return c.result(scalar.MatchWildcard(constant, text), ce.KindBool)
}

func toNumber(c call) (Value, error) {
	switch c.arguments[0].kind() {
	case ce.KindInt, ce.KindNumber:
		return c.arguments[0], nil
	case ce.KindString:
		v, err := c.result(ce.Function("double", c.sources[0]), ce.KindNumber)
		v.when = ce.Call(c.sources[0], "matches", ce.Quote(scalar.DecimalPattern)) // other text is null
		return v, err
	}
	return c.leftOut()
}

func toString(c call) (Value, error) {
	switch c.arguments[0].kind() {
	case ce.KindString:
		return c.arguments[0], nil
	case ce.KindInt, ce.KindBool, ce.KindIntOrString, ce.KindQuantity:
		return c.result(ce.Function("string", c.sources[0]), ce.KindString)
	}
	return c.leftOut()
}

func labelMatch(c call) (Value, error) {
	if !c.are(ce.KindMap, ce.KindAny) {
		return c.leftOut()
	}
	wanted, actual := c.sources[0], c.sources[1]
	at := func(m ce.Expression) ce.Expression { return ce.Term(m.In(ce.Primary) + "[key]") }
	each := ce.And(ce.Relate(ce.Term("key"), "in", actual), ce.Relate(at(actual), "==", at(wanted)))
	return c.result(ce.Macro(wanted, "all", "key", each), ce.KindBool)
}

// lookup is a member of a map by a name.
func lookup(c call) (Value, error) {
	name, ok := c.arguments[1].constant.(string)
	if !ok || c.arguments[0].kind() != ce.KindMap {
		return c.leftOut()
	}
	return c.arguments[0].field(name)
}

func notNull(c call) (Value, error) {
	if c.arguments[0].place == nil || c.arguments[0].kind() != c.arguments[1].kind() {
		return c.leftOut()
	}
	e, err := c.arguments[0].orElse(c.sources[1].String())
	return computed(e, c.arguments[0].shape, c.arguments[1]), err
}

// arithmetic is an operator for numbers. JMESPath's numbers have fractions.
func arithmetic(operator string, p ce.Precedence) func(call) (Value, error) {
	return func(c call) (Value, error) {
		if !c.are(ce.KindInt, ce.KindNumber) {
			return c.leftOut()
		}
		left, right, kind := c.numbers()
		return c.result(ce.Raw(left.In(p)+operator+right.In(p+1), p), kind)
	}
}

// numbers returns both arguments as numbers of one type.
func (c call) numbers() (left, right ce.Expression, k ce.Kind) {
	if c.are(ce.KindInt) {
		return c.sources[0], c.sources[1], ce.KindInt
	}
	return c.double(0), c.double(1), ce.KindNumber
}

func (c call) double(i int) ce.Expression {
	if c.arguments[i].kind() == ce.KindNumber {
		return c.sources[i]
	}
	return ce.Function("double", c.sources[i])
}

func divide(c call) (Value, error) {
	if !c.are(ce.KindInt, ce.KindNumber) {
		return c.leftOut()
	}
	divisor := c.double(1)
	if n, ok := c.arguments[1].constant.(int64); !ok || n == 0 {
		return c.leftOut() // Kyverno fails for 0, CEL returns infinity
	}
	return c.result(ce.Raw(c.double(0).In(ce.Multiplication)+" / "+divisor.In(ce.Unary), ce.Multiplication), ce.KindNumber)
}

func modulo(c call) (Value, error) {
	if !c.are(ce.KindInt) {
		return c.leftOut()
	}
	return c.result(ce.Raw(c.sources[0].In(ce.Multiplication)+" % "+c.sources[1].In(ce.Unary), ce.Multiplication), ce.KindInt)
}

// aggregate is a function of a list of numbers.
func aggregate(name string) func(call) (Value, error) {
	return func(c call) (Value, error) {
		v := c.arguments[0]
		element := v.shape.Element().Kind()
		if v.stream != nil {
			element = v.stream.innermost().element.kind()
		}
		if element != ce.KindInt {
			return c.leftOut()
		}
		return c.result(ce.Call(c.sources[0], name), ce.KindInt)
	}
}

func abs(c call) (Value, error) {
	if !c.are(ce.KindInt) {
		return c.leftOut()
	}
	v := c.sources[0]
	return c.result(ce.If(ce.Relate(v, "<", ce.Term("0")), ce.Raw("-"+v.In(ce.Primary), ce.Unary), v), ce.KindInt)
}
