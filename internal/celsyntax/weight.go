package celsyntax

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Bounds of a policy, within those of the CustomResourceDefinition. A compilation cannot
// be interrupted, so costly policies are rejected before it. TestWorstPoliciesThatCompile
// measures the worst policies within the bounds.
const (
	// MaxNodes is the number of constants, names, selections and calls in all
	// expressions. A long string constant is one of them, because it costs little.
	MaxNodes = 32 << 10
	// MaxCalls is the number of calls of functions and operators in all expressions.
	// Logical operators do not count.
	MaxCalls = 4096
	// MaxCallsOfOne is their number in one expression. The time grows with its square.
	MaxCallsOfOne = 512
	// MaxOpenTypes is the number of comprehensions and of empty lists and maps in all
	// expressions. CEL infers the types of their elements, in a time that grows at least
	// with the square of their number in one expression.
	MaxOpenTypes = 512
	// MaxComputedKeys is the number of keys in map literals of an expression that are not
	// constants. {x: x} doubles the size of the type of x.
	MaxComputedKeys = 8
	// MaxPattern is the number of instructions of all regular expressions. Each takes 40
	// bytes, at least twice.
	MaxPattern = 100_000
)

// weights counts the parts of a policy that are costly to compile.
type weights struct {
	nodes, calls, openTypes, pattern int
}

// Parse returns the syntax trees of a policy, or an error if the policy exceeds a bound. It does not check
// expressions, and leaves those that cannot be parsed to the compiler.
func Parse(env *cel.Env, spec *v1alpha1.WebhookPolicySpec) (Trees, *field.Error) {
	var w weights
	parsed := Trees{}
	for path, expression := range Expressions(spec) {
		a, err := w.parse(env, expression)
		if err != nil {
			return nil, field.Invalid(path, truncate.String(expression, maxErrorDetail), err.Error())
		}
		parsed[expression] = a
	}
	for path, expression := range StoredExpressions(spec) {
		if _, err := w.parse(env, expression); err != nil {
			return nil, field.Invalid(path, truncate.String(expression, maxErrorDetail), err.Error())
		}
	}
	return parsed, nil
}

// maxErrorDetail is the maximum of bytes of an expression in an error.
const maxErrorDetail = 2048

var errTooManyNodes = fmt.Errorf(
	"the expressions of this policy have more than %d constants, names, selections and calls together; split the policy", MaxNodes)

// parse adds an expression, and returns an error if a bound is exceeded. It returns nil for
// an expression that cannot be parsed, which the compiler reports.
func (w *weights) parse(env *cel.Env, expression string) (*cel.Ast, error) {
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		// For example "a.b.c.": at most one node for two bytes.
		if w.nodes += len(expression) / 2; w.nodes > MaxNodes {
			return nil, errTooManyNodes
		}
		return nil, nil // the compiler reports it
	}
	computed, before := 0, w.calls
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		w.nodes++
		switch e.Kind() {
		case ast.ComprehensionKind:
			w.openTypes++
		case ast.ListKind:
			if e.AsList().Size() == 0 {
				w.openTypes++
			}
		case ast.MapKind:
			if e.AsMap().Size() == 0 {
				w.openTypes++
			}
			computed += computedKeys(e.AsMap())
		case ast.CallKind:
			w.addCall(e.AsCall())
		}
	}))
	switch {
	case w.nodes > MaxNodes:
		return nil, errTooManyNodes
	case w.calls > MaxCalls || w.calls-before > MaxCallsOfOne:
		return nil, fmt.Errorf("an expression has more than %d calls of functions and operators, or those of this policy "+
			"have more than %d together; split the expression into variables, or the policy", MaxCallsOfOne, MaxCalls)
	case w.openTypes > MaxOpenTypes:
		return nil, fmt.Errorf("the expressions of this policy have more than %d macros such as all() and map() and empty "+
			"lists and maps together; split the policy", MaxOpenTypes)
	case computed > MaxComputedKeys:
		return nil, fmt.Errorf("more than %d keys of map literals are not constants; split the expression into variables", MaxComputedKeys)
	case w.pattern > MaxPattern:
		return nil, errors.New("the regular expressions of this policy are too large, with their repetitions; " +
			"shorten them, or split the policy")
	}
	return parsed, nil
}

func computedKeys(m ast.MapExpr) (n int) {
	for _, entry := range m.Entries() {
		if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
			n++
		}
	}
	return n
}

// addCall adds a call, and the regular expressions that are compiled with it.
func (w *weights) addCall(call ast.CallExpr) {
	if !slices.Contains([]string{operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot}, call.FunctionName()) {
		w.calls++
	}
	if !slices.Contains([]string{"matches", "find", "findAll"}, call.FunctionName()) {
		return
	}
	for _, arg := range call.Args() {
		if arg.Kind() != ast.LiteralKind {
			continue
		}
		if text, ok := arg.AsLiteral().(types.String); ok {
			if pattern, err := syntax.Parse(string(text), syntax.Perl); err == nil {
				w.pattern += instructions(pattern)
			}
		}
	}
}

// instructions returns about the number of instructions of a regular expression. Package
// syntax bounds the depth, and repetitions by 1,000.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return n
}
