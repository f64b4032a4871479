package celengine

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/internal/celsyntax"
)

// CEL adds the cost of a function after the function has returned, and nothing can
// interrupt a call. These bounds are therefore checked before the call. An argument
// beyond them is an error of the expression, like an exceeded cost limit. Such arguments
// are far beyond the cost limit, or take minutes.
const (
	// maxResult is the length in bytes of a text that the cost limit of one
	// expression permits: a tenth of a unit per byte of 1,000,000 units.
	maxResult = 10_000_000
	// MaxRange is the number of elements of lists.range().
	MaxRange = 1 << 20
	// maxComparisons is the number of pairs of elements that one call compares.
	maxComparisons = 1 << 25
	// maxSearch is the product of the lengths of a text and of what is searched in it.
	maxSearch = 1 << 30
	// maxQuantity is the length in bytes of a quantity, and maxExponent its exponent.
	maxQuantity, maxExponent = 128, 128
)

// boundedOverloads returns the overloads whose time or memory grows faster than the size
// of their arguments, with a check of the arguments.
func boundedOverloads() map[string]func(args []ref.Val) error {
	return map[string]func(args []ref.Val) error{
		"string_replace_string_string":     checkReplace,
		"string_replace_string_string_int": checkReplace,
		"list_join_string":                 checkJoin,
		"string_to_quantity":               checkQuantity,
		"is_quantity_string":               checkQuantity,
		"lists_range":                      checkRange,
		"list_distinct":                    func(args []ref.Val) error { return checkPairs(args[0], args[0]) },
		"list_sets_contains_list":          func(args []ref.Val) error { return checkPairs(args[0], args[1]) },
		"list_sets_equivalent_list":        func(args []ref.Val) error { return checkPairs(args[0], args[1]) },
		"list_sets_intersects_list":        func(args []ref.Val) error { return checkPairs(args[0], args[1]) },
		"string_index_of_string":           checkSearch,
		"string_index_of_string_int":       checkSearch,
		"string_last_index_of_string":      checkSearch,
		"string_last_index_of_string_int":  checkSearch,
		"string_find_string":               checkMatch,
		"string_find_all_string":           checkMatch,
		"string_find_all_string_int":       checkMatch,
	}
}

// withBoundedFunctions returns an environment that checks the arguments of the
// bounded overloads, and otherwise calls the functions of the given one.
func withBoundedFunctions(base *environment.EnvSet) (*environment.EnvSet, error) {
	checks := boundedOverloads()
	var options []cel.EnvOption
	for name, function := range base.StoredExpressionsEnv().Functions() {
		bindings, err := function.Bindings()
		if err != nil {
			return nil, fmt.Errorf("reading the function %s: %w", name, err)
		}
		for _, declared := range function.OverloadDecls() {
			if check, ok := checks[declared.ID()]; ok {
				options = append(options, cel.Function(name, bounded(declared, bindings, check)))
				delete(checks, declared.ID())
			}
		}
	}
	for id := range checks {
		return nil, fmt.Errorf("the environment has no overload %s", id)
	}
	return base.Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options})
}

// bounded declares an overload again, with a binding that checks its arguments.
func bounded(declared *decls.OverloadDecl, bindings []*functions.Overload, check func([]ref.Val) error) cel.FunctionOpt {
	declare := cel.Overload
	if declared.IsMemberFunction() {
		declare = cel.MemberOverload
	}
	checked := func(args ...ref.Val) ref.Val {
		if err := check(args); err != nil {
			return types.WrapErr(err)
		}
		for _, b := range bindings {
			switch {
			case b.Operator != declared.ID():
			case b.Unary != nil && len(args) == 1:
				return b.Unary(args[0])
			case b.Binary != nil && len(args) == 2:
				return b.Binary(args[0], args[1])
			case b.Function != nil:
				return b.Function(args...)
			}
		}
		return types.NoSuchOverloadErr()
	}
	return declare(declared.ID(), declared.ArgTypes(), declared.ResultType(), cel.FunctionBinding(checked))
}

func text(v ref.Val) string {
	s, _ := v.Value().(string)
	return s
}

func checkReplace(args []ref.Val) error {
	in, old, replacement := text(args[0]), text(args[1]), text(args[2])
	count := strings.Count(in, old)
	if len(args) == 4 {
		if limit, ok := args[3].Value().(int64); ok && limit >= 0 {
			count = int(min(int64(count), limit))
		}
	}
	return checkResult(len(in) + count*(len(replacement)-len(old)))
}

func checkJoin(args []ref.Val) error {
	return checkResult(sizeOf(args[0]) * len(text(args[1])))
}

func checkResult(size int) error {
	if size > maxResult {
		return fmt.Errorf("the result would have more than %d bytes", maxResult)
	}
	return nil
}

// checkQuantity rejects quantities that take long to compare and add: with very many
// digits, or with a very large exponent. The function itself rejects other texts.
func checkQuantity(args []ref.Val) error {
	s := text(args[0])
	if len(s) > maxQuantity {
		if strings.Trim(s, "+-.0123456789eEinumkKMGTP") == "" {
			return fmt.Errorf("a quantity has more than %d characters", maxQuantity)
		}
		return nil
	}
	if at := strings.LastIndexAny(s, "eE"); at >= 0 {
		if exponent, err := strconv.ParseFloat(s[at+1:], 64); err == nil && math.Abs(exponent) > maxExponent {
			return fmt.Errorf("the exponent of the quantity %q is beyond %d", s, maxExponent)
		}
	}
	return nil
}

func checkRange(args []ref.Val) error {
	if n, ok := args[0].Value().(int64); ok && n > MaxRange {
		return fmt.Errorf("a range has more than %d elements", MaxRange)
	}
	return nil
}

func checkPairs(a, b ref.Val) error {
	if sizeOf(a)*sizeOf(b) > maxComparisons {
		return fmt.Errorf("lists of %d and %d elements are too long to compare each with each", sizeOf(a), sizeOf(b))
	}
	return nil
}

func sizeOf(v ref.Val) int {
	if list, ok := v.(traits.Lister); ok {
		n, _ := list.Size().Value().(int64)
		return int(n)
	}
	return 0
}

func checkSearch(args []ref.Val) error {
	if in, part := text(args[0]), text(args[1]); len(in)*len(part) > maxSearch {
		return fmt.Errorf("texts of %d and %d bytes are too long to search one in the other", len(in), len(part))
	}
	return nil
}

// checkMatch bounds a regular expression that is not a constant. CEL does not allow this
// for matches(), and compiles constants with the policy: see celsyntax.MaxPattern.
func checkMatch(args []ref.Val) error {
	in, pattern := text(args[0]), text(args[1])
	if len(pattern) > celsyntax.MaxPattern || len(in)*len(pattern) > maxSearch {
		return fmt.Errorf("a text of %d bytes and a pattern of %d bytes are too long to match", len(in), len(pattern))
	}
	return nil
}
