package conditions

import (
	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// functionCall is a call of a function. A null argument fails in JMESPath and in CEL.
type functionCall struct {
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
	c := functionCall{name: name, scope: s}
	build, known := functionConverters()[c.name]
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

type functionConverter struct {
	arguments int
	convert   func(functionCall) (Value, error)
}

// functionConverters are the functions of JMESPath and Kyverno that CEL has too.
func functionConverters() map[string]functionConverter {
	return map[string]functionConverter{
		"length":        {1, sizeOf},
		"contains":      {2, containsFunction},
		"keys":          {1, keysOfMap},
		"values":        {1, func(c functionCall) (Value, error) { return valuesOfMap(c.arguments[0]) }},
		"starts_with":   {2, stringMethod("startsWith", ce.KindBool)},
		"ends_with":     {2, stringMethod("endsWith", ce.KindBool)},
		"split":         {2, splitText},
		"join":          {2, joinTexts},
		"to_upper":      {1, changeCase("upperAscii")},
		"to_lower":      {1, changeCase("lowerAscii")},
		"replace_all":   {3, stringMethod("replace", ce.KindString)},
		"trim_prefix":   {2, trimPrefix},
		"regex_match":   {2, regexMatch},
		"pattern_match": {2, patternMatch},
		"to_number":     {1, toNumber},
		"to_string":     {1, toString},
		"label_match":   {2, labelMatch},
		"lookup":        {2, lookUpMember},
		"not_null":      {2, notNull},
		"add":           {2, arithmeticOperator(" + ", ce.Addition)},
		"subtract":      {2, arithmeticOperator(" - ", ce.Addition)},
		"multiply":      {2, arithmeticOperator(" * ", ce.Multiplication)},
		"divide":        {2, divideNumbers},
		"modulo":        {2, moduloNumbers},
		"sum":           {1, aggregateFunction("sum")},
		"max":           {1, aggregateFunction("max")},
		"min":           {1, aggregateFunction("min")},
		"abs":           {1, absoluteValue},
		"sort":          {1, sortedList},
		"to_array":      {1, toArray},

		"regex_replace_all":         {3, replaceRegex},
		"regex_replace_all_literal": {3, replaceRegex},
	}
}

func (c functionCall) result(e ce.Expression, k ce.Kind) (Value, error) {
	return computedValue(e, ce.ShapeOfKind(k), c.arguments...), nil
}

func (c functionCall) leftOut() (Value, error) {
	return Value{}, leftOut("the JMESPath function %s() with arguments of these types", c.name)
}

// argumentsAre reports whether all arguments have one of some kinds.
func (c functionCall) argumentsAre(kinds ...ce.Kind) bool {
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

// stringMethod is the call of a method of a string with string arguments. A value of unknown type
// fails in both languages if it is no string.
func stringMethod(name string, result ce.Kind) func(functionCall) (Value, error) {
	return func(c functionCall) (Value, error) {
		if !c.argumentsAre(ce.KindString, ce.KindAny) {
			return c.leftOut()
		}
		return c.result(ce.Call(c.sources[0], name, c.sources[1:]...), result)
	}
}

// changeCase changes the case of letters.
func changeCase(name string) func(functionCall) (Value, error) {
	return func(c functionCall) (Value, error) {
		c.scope.note("%s() leaves letters outside of ASCII unchanged", c.name)
		return stringMethod(name, ce.KindString)(c)
	}
}

func sizeOf(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindString, ce.KindList, ce.KindMap, ce.KindAny) {
		return c.leftOut()
	}
	return c.result(ce.Call(c.sources[0], "size"), ce.KindInt)
}

func containsFunction(c functionCall) (Value, error) {
	switch c.arguments[0].kind() {
	case ce.KindList:
		return c.result(ce.Relate(c.sources[1], "in", c.sources[0]), ce.KindBool)
	case ce.KindString:
		if c.arguments[1].kind() == ce.KindString || c.arguments[1].kind() == ce.KindAny {
			return c.result(ce.Call(c.sources[0], "contains", c.sources[1]), ce.KindBool)
		}
	case ce.KindAny:
		if c.arguments[1].kind() == ce.KindString {
			inList := ce.Relate(c.sources[1], "in", c.sources[0])
			inText := ce.Call(c.sources[0], "contains", c.sources[1])
			return c.result(ce.If(isOfType(c.sources[0], "list"), inList, inText), ce.KindBool)
		}
	}
	return c.leftOut()
}

// isOfType is true for values of a type.
func isOfType(e ce.Expression, name string) ce.Expression {
	return ce.Relate(ce.Function("type", e), "==", ce.Term(name))
}

func keysOfMap(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindMap, ce.KindAny) {
		return c.leftOut()
	}
	return computedValue(
		ce.Macro(c.sources[0], "map", "key", ce.Term("key")),
		ce.ShapeOfList(ce.ShapeOfKind(ce.KindString)),
		c.arguments...,
	), nil
}

func splitText(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindString, ce.KindAny) {
		return c.leftOut()
	}
	return computedValue(
		ce.Call(c.sources[0], "split", c.sources[1]),
		ce.ShapeOfList(ce.ShapeOfKind(ce.KindString)),
		c.arguments...,
	), nil
}

func joinTexts(c functionCall) (Value, error) {
	if c.arguments[0].kind() != ce.KindString || c.arguments[1].kind() != ce.KindList {
		return c.leftOut()
	}
	return c.result(ce.Call(c.sources[1], "join", c.sources[0]), ce.KindString)
}

func trimPrefix(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindString) {
		return c.leftOut()
	}
	text, prefix := c.sources[0], c.sources[1]
	return c.result(
		ce.If(ce.Call(text, "startsWith", prefix), ce.Call(text, "substring", ce.Call(prefix, "size")), text),
		ce.KindString,
	)
}

// text returns an argument as Kyverno's functions for text read it.
func (c functionCall) text(i int) (ce.Expression, bool) {
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

func regexMatch(c functionCall) (Value, error) {
	text, ok := c.text(1)
	if !ok || c.arguments[0].kind() != ce.KindString {
		return c.leftOut()
	}
	return c.result(ce.Call(text, "matches", c.sources[0]), ce.KindBool)
}

func patternMatch(c functionCall) (Value, error) {
	text, ok := c.text(1)
	constant, isText := c.arguments[0].constant.(string)
	if !ok || !isText {
		return c.leftOut()
	}
	return c.result(scalar.MatchWildcard(constant, text), ce.KindBool)
}

func toNumber(c functionCall) (Value, error) {
	switch c.arguments[0].kind() {
	case ce.KindInt, ce.KindNumber:
		return c.arguments[0].afterPipe(), nil
	case ce.KindString:
		v, err := c.result(ce.Function("double", c.sources[0]), ce.KindNumber)
		v.when = ce.Call(c.sources[0], "matches", ce.Quote(scalar.DecimalPattern))
		if c.arguments[0].place != nil {
			v.when = ce.And(c.arguments[0].existence(), v.when)
		}
		v.absent, v.fails = absentNull, false // null and other text are null
		return v, err
	}
	return c.leftOut()
}

// toString returns the text "null" for null.
func toString(c functionCall) (Value, error) {
	v, isText := c.arguments[0], false
	switch v.kind() {
	case ce.KindString:
		isText = true
	case ce.KindInt, ce.KindBool, ce.KindIntOrString, ce.KindQuantity:
	default:
		return c.leftOut()
	}
	asText := func(e ce.Expression) ce.Expression {
		if isText {
			return e
		}
		return ce.Function("string", e)
	}
	if v.place != nil && v.place.Optional() && v.place.Guard().IsTrue() {
		text := ce.If(v.place.Present(), asText(v.place.Value()), ce.Quote("null"))
		return computedValue(text, ce.ShapeOfKind(ce.KindString)), nil
	}
	if v.when.String() != "" && v.absent == absentNull {
		return computedValue(v.orNullText(asText(v.expression)), ce.ShapeOfKind(ce.KindString)), nil
	}
	if isText {
		return v, nil
	}
	return c.result(asText(c.sources[0]), ce.KindString)
}

func labelMatch(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindMap, ce.KindAny) {
		return c.leftOut()
	}
	wanted, actual := c.sources[0], c.sources[1]
	at := func(m ce.Expression) ce.Expression { return ce.Term(m.In(ce.Primary) + "[key]") }
	each := ce.And(ce.Relate(ce.Term("key"), "in", actual), ce.Relate(at(actual), "==", at(wanted)))
	return c.result(ce.Macro(wanted, "all", "key", each), ce.KindBool)
}

// lookUpMember is a member of a map by a name. A member that is absent is null.
func lookUpMember(c functionCall) (Value, error) {
	name, ok := c.arguments[1].constant.(string)
	if !ok || c.arguments[0].kind() != ce.KindMap {
		return c.leftOut()
	}
	member, err := c.arguments[0].field(name)
	if err != nil {
		return Value{}, err
	}
	isMember := ce.Relate(ce.Quote(name), "in", c.sources[0])
	return Value{expression: member.place.Strict(), shape: member.shape, when: isMember}, nil
}

func notNull(c functionCall) (Value, error) {
	if c.arguments[0].place == nil || c.arguments[0].kind() != c.arguments[1].kind() {
		return c.leftOut()
	}
	e, err := c.arguments[0].orElse(c.sources[1].String())
	return computedValue(e, c.arguments[0].shape, c.arguments[1]), err
}

// arithmeticOperator is an operator for numbers. JMESPath's numbers have fractions.
func arithmeticOperator(operator string, p ce.Precedence) func(functionCall) (Value, error) {
	return func(c functionCall) (Value, error) {
		if !c.argumentsAre(ce.KindInt, ce.KindNumber) {
			return c.leftOut()
		}
		left, right, kind := c.numbers()
		return c.result(ce.Raw(left.In(p)+operator+right.In(p+1), p), kind)
	}
}

// numbers returns both arguments as numbers of one type.
func (c functionCall) numbers() (left, right ce.Expression, k ce.Kind) {
	if c.argumentsAre(ce.KindInt) {
		return c.sources[0], c.sources[1], ce.KindInt
	}
	return c.double(0), c.double(1), ce.KindNumber
}

func (c functionCall) double(i int) ce.Expression {
	if c.arguments[i].kind() == ce.KindNumber {
		return c.sources[i]
	}
	return ce.Function("double", c.sources[i])
}

func divideNumbers(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindInt, ce.KindNumber) {
		return c.leftOut()
	}
	divisor := c.double(1)
	if n, ok := c.arguments[1].constant.(int64); !ok || n == 0 { // Kyverno fails for 0, CEL returns infinity
		name := c.scope.variable(Value{})
		divisors := ce.Macro(ce.List(divisor), "filter", name, ce.Relate(ce.Term(name), "!=", ce.Term("0.0")))
		divisor = ce.Term(divisors.String() + "[0]")
	}
	return c.result(
		ce.Raw(c.double(0).In(ce.Multiplication)+" / "+divisor.In(ce.Unary), ce.Multiplication),
		ce.KindNumber,
	)
}

func moduloNumbers(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindInt) {
		return c.leftOut()
	}
	return c.result(
		ce.Raw(c.sources[0].In(ce.Multiplication)+" % "+c.sources[1].In(ce.Unary), ce.Multiplication),
		ce.KindInt,
	)
}

// aggregateFunction is a function of a list of numbers. For an empty list, the sum fails in
// Kyverno, and the others are null.
func aggregateFunction(name string) func(functionCall) (Value, error) {
	return func(c functionCall) (Value, error) {
		v, list := c.arguments[0], c.sources[0]
		element := v.shape.Element().Kind()
		if v.stream != nil {
			element = v.stream.innermost().element.kind()
		}
		if element != ce.KindInt {
			return c.leftOut()
		}
		hasElements := ce.Relate(ce.Call(list, "size"), ">", ce.Term("0")) // fails if the list is absent
		if name == "sum" {
			name := c.scope.variable(Value{})
			lists := ce.Macro(ce.List(list), "filter", name, ce.Relate(ce.Call(ce.Term(name), "size"), ">", ce.Term("0")))
			sum, err := c.result(ce.Call(ce.Term(lists.String()+"[0]"), "sum"), ce.KindInt)
			sum.when, sum.absent, sum.fails = hasElements, absentFailure, true
			return sum, err
		}
		return Value{expression: ce.Call(list, name), shape: ce.ShapeOfKind(ce.KindInt), when: hasElements}, nil
	}
}

func absoluteValue(c functionCall) (Value, error) {
	if !c.argumentsAre(ce.KindInt) {
		return c.leftOut()
	}
	v := c.sources[0]
	return c.result(ce.If(ce.Relate(v, "<", ce.Term("0")), ce.Raw("-"+v.In(ce.Primary), ce.Unary), v), ce.KindInt)
}
