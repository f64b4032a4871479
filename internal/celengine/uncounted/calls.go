package uncounted

import (
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/ostiary/ostiary/internal/celengine"
)

// callBound bounds one call, without its arguments, for every overload of the function, because the overload of
// values without a static type is not known before the call. The cost of a call is that of, in this order, the option
// OverloadCostTracker of a library, CallCost in k8s.io/apiserver/pkg/cel/library, and costCall in
// cel-go/interpreter, where it is 1 for an overload that is not known. They charge calls with arguments of a wrong type
// too, so the size of a text is also the number of elements that it can have instead; but not for a call that
// mustSucceed.
//
// TestOverloadsAreBounded calls every overload, and fails for one that it does not know.
func callBound(function string, args []extent) (float64, extent) {
	switch function {
	case "flatten":
		return flattenBound(args)
	case "cel.@mapInsert":
		return mapInsertBound(args)
	}
	padded := slices.Concat(args, make([]extent, 3))
	libraries := [...]func(string, []extent) (float64, extent, bool){
		operatorBound, valueBound, textBound, regexBound, listBound, kubernetesBound,
	}
	for _, bounded := range libraries {
		if cost, size, ok := bounded(function, padded); ok {
			return cost, size
		}
	}
	return unbounded()
}

func operatorBound(operator string, args []extent) (cost float64, size extent, ok bool) {
	a, b, c := args[0], args[1], args[2]
	switch operator {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse,
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate:
		return 1, scalar(), true
	case operators.Conditional:
		return 1, b.union(c), true
	case operators.Equals, operators.NotEquals,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return 1 + min(a.traversal(), b.traversal()), scalar(), true
	case operators.In:
		return 1 + b.elements, scalar(), true
	case operators.Add:
		return a.plus(b).traversal(), a.plus(b), true
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return 2, a.union(a.part()), true
	}
	return 0, extent{}, false
}

// valueBound bounds conversions and the functions of times and optional values. An optional value has the extent of
// its value.
func valueBound(function string, args []extent) (cost float64, size extent, ok bool) {
	a, b := args[0], args[1]
	switch function {
	case overloads.Size:
		size = scalar()
		size.most = 1 + a.size()
		return 1, size, true
	case overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble,
		overloads.TypeConvertBool, overloads.TypeConvertDuration, overloads.TypeConvertTimestamp,
		overloads.TypeConvertType, "hasValue", "optional.none",
		overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDayOfMonth,
		overloads.TimeGetDate, overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes,
		overloads.TimeGetSeconds, overloads.TimeGetMilliseconds:
		return 1, scalar(), true
	case overloads.TypeConvertDyn:
		return 1, a, true
	case "value", "optional.of", "optional.ofNonZeroValue":
		return 2, a, true
	case "or", "orValue":
		return 2, a.union(b), true
	case overloads.TypeConvertBytes:
		return a.traversal(), textOf(a.text), true
	case overloads.TypeConvertString: // numbers, times and addresses are short
		return a.traversal(), textOf(max(a.text, 64)), true
	}
	return 0, extent{}, false
}

func textBound(function string, args []extent) (cost float64, size extent, ok bool) {
	a, b, c := args[0], args[1], args[2]
	switch function {
	case overloads.StartsWith, overloads.EndsWith:
		return a.union(b).traversal(), scalar(), true // versions count either of them
	case overloads.Contains:
		return a.traversal() * b.traversal(), scalar(), true
	case "lowerAscii", "upperAscii", "trim", "substring", "charAt":
		return a.traversal(), textOf(a.text), true
	case "split":
		return 2 * a.traversal(), textsOf(a.text+1, a.text), true
	case "join":
		text := min(product(a.elements, a.text), 10*a.weight) + product(a.elements, b.text)
		return 2 * textOf(text).traversal(), textOf(text), true
	case "replace":
		return 2 * a.traversal(), textOf((a.text + 1) * (c.text + 1)), true
	case "strings.quote":
		return a.traversal(), textOf(4*a.text + 2), true
	case "format":
		return a.traversal(), textOf(formatted(a, b)), true
	}
	return 0, extent{}, false
}

// formatted bounds the bytes of a formatted text. Each value has at most 64 bytes with the quotes and separators
// around it, or 384 for a double, or four for a byte that has to be escaped. A verb for a number writes at most 512
// bytes, unless the format has a precision, which can be any number.
func formatted(format, values extent) float64 {
	text, ok := format.constant.(types.String)
	if !ok || strings.Contains(string(text), "%.") {
		return math.Inf(1)
	}
	return format.text + 512*float64(strings.Count(string(text), "%")) + 64*values.weight
}

// regexBound bounds searches. CEL takes a regular expression to have a step for every four characters.
func regexBound(function string, args []extent) (cost float64, size extent, ok bool) {
	a, b := args[0], args[1]
	switch function {
	case overloads.Matches:
		return matchBound(a, b.size()), scalar(), true
	case "find":
		return matchBound(a, b.size()), textOf(a.text), true
	case "findAll":
		return matchBound(a, b.size()), textsOf(a.text+1, a.text), true
	case "validate": // the errors of a format quote the text up to twice
		return matchBound(b, longestFormat()), textsOf(16, 2048+8*b.text), true
	}
	return 0, extent{}, false
}

func matchBound(text extent, pattern float64) float64 {
	return (1.1 + text.size()/10) * (1 + pattern/4)
}

func longestFormat() float64 {
	longest := 0
	for _, format := range library.ConstantFormats {
		longest = max(longest, format.MaxRegexSize)
	}
	return float64(longest)
}

// kubernetesBound bounds the functions of the types that Kubernetes adds.
func kubernetesBound(function string, args []extent) (cost float64, size extent, ok bool) {
	a, b := args[0], args[1]
	switch function {
	case "isGreaterThan", "isLessThan", "compareTo", "isInteger", "asInteger", "asApproximateFloat", "sign", "add", "sub",
		"major", "minor", "patch", "format.named",
		"family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
		"prefixLength":
		return 1, scalar(), true
	case "quantity", "isQuantity", "semver", "isSemver", "isIP", "isCIDR", "isURL":
		return a.traversal(), scalar(), true
	case "ip", "cidr", "masked":
		return a.traversal(), address(), true
	case "ip.isCanonical":
		return 2 * a.traversal(), scalar(), true
	case "containsIP", "containsCIDR": // the own address is read up to three times
		return 1 + 3*a.traversal() + b.traversal(), scalar(), true
	case "url":
		return a.traversal(), urlOf(a.text+1, a.text), true
	case "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath":
		return 1, textOf(a.text), true
	case "getQuery":
		return 1, a, true
	}
	if strings.HasPrefix(function, "format.") {
		return 1, scalar(), true
	}
	return 0, extent{}, false
}

// address is the extent of an IP address or a CIDR, whose size is that of its bytes.
func address() extent { return extent{elements: 1, text: 16, weight: 3} }

// urlOf is the extent of a URL and of its parts. Both a byte that the path has to escape and a byte of the query that
// is no UTF-8, and that other functions replace, have three bytes.
func urlOf(parameters, bytes float64) extent {
	return extent{
		elements: parameters, nested: parameters, text: 3 * bytes, weight: 2 + 3*parameters + 3*bytes/10,
	}
}

// listBound bounds the functions of lists, of which indexOf and lastIndexOf also search in texts.
func listBound(function string, args []extent) (cost float64, size extent, ok bool) {
	a, b := args[0], args[1]
	switch function {
	case "isSorted", "sum", "indexOf", "lastIndexOf", "includes":
		return 1 + a.weight, scalar(), true
	case "max", "min":
		return 1 + a.weight, a.part(), true
	case "first", "last":
		return 1, a.part(), true
	case "optional.unwrap", "unwrapOpt":
		return 1, a.asList(), true
	case "slice", "reverse":
		return 11 + a.elements, a.asList(), true
	case "sort", "distinct":
		return selfComparison(a), a.asList(), true
	case "@sortByAssociatedKeys":
		return selfComparison(b), a.asList(), true
	case "sets.contains", "sets.intersects":
		return 1 + product(a.elements, b.elements), scalar(), true
	case "sets.equivalent":
		return 1 + 2*product(a.elements, b.elements), scalar(), true
	case "lists.range":
		n := rangeLimit(a)
		return 11 + n, textsOf(n, 0), true
	}
	return 0, extent{}, false
}

// asList is the extent of a list that has at most the elements of the list.
func (e extent) asList() extent {
	e.container, e.constant, e.most = true, nil, 0
	return e
}

// selfComparison is the cost of comparing each element of a list with each.
func selfComparison(list extent) float64 { return 11 + 2.1*list.elements*list.elements }

// rangeLimit bounds the number of elements of a range.
func rangeLimit(n extent) float64 {
	if constant, ok := n.constant.(types.Int); ok {
		return min(max(float64(constant), 0), celengine.MaxRange)
	}
	if n.most > 0 {
		return min(n.most, celengine.MaxRange)
	}
	return celengine.MaxRange
}

// flattenBound bounds a list in which lists take the place of their elements, down to a depth. CEL charges the depth
// for each element, even if no list is as deep, so the depth has to be known.
func flattenBound(args []extent) (float64, extent) {
	depth := 1.0
	if len(args) > 1 {
		constant, ok := args[1].constant.(types.Int)
		if !ok {
			return unbounded()
		}
		depth = max(float64(constant), 1) // an error for a negative one costs 1
	}
	size := args[0].asList()
	size.elements = size.weight // counts every value in it
	return 11 + product(depth, args[0].size()), size
}

// mapInsertBound bounds a map with another key and value, or with the entries of another map.
func mapInsertBound(args []extent) (float64, extent) {
	if len(args) < 3 {
		return 1, args[0].plus(args[1])
	}
	size := args[0].with(args[1]).with(args[2])
	size.elements = args[0].elements + 1
	return 1, size
}
