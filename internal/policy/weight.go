package policy

import (
	"errors"
	"fmt"
	"iter"
	"regexp/syntax"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Bounds of a policy, within those of the CustomResourceDefinition. A compilation cannot
// be interrupted, so costly policies are rejected before it. TestWorstPoliciesThatCompile
// measures the worst policies within the bounds.
const (
	// maxNodes is the number of constants, names, selections and calls in all
	// expressions. A long string constant is one of them, because it costs little.
	maxNodes = 32 << 10
	// maxCalls is the number of calls of functions and operators in all expressions,
	// maxCallsOfOne in one. Logical operators do not count. The time grows with the
	// square of their number in one expression.
	maxCalls, maxCallsOfOne = 4096, 512
	// maxOpenTypes is the number of comprehensions and of empty lists and maps in all
	// expressions. CEL infers the types of their elements, in a time that grows at least
	// with the square of their number in one expression.
	maxOpenTypes = 512
	// maxComputedKeys is the number of keys in map literals of an expression that are not
	// constants. {x: x} doubles the size of the type of x.
	maxComputedKeys = 8
	// maxVariableType is the number of types in the type of a variable.
	maxVariableType = 32
	// maxPattern is the number of instructions of all regular expressions. Each takes 40
	// bytes, at least twice.
	maxPattern = 100_000
)

// weights counts the parts of a policy that are costly to compile.
type weights struct {
	nodes, calls, openTypes, pattern int
}

// weigh returns an error if a policy exceeds a bound. It parses the expressions and does
// not check them. It also returns those that can be parsed.
func (c *Compiler) weigh(p *v1alpha1.WebhookPolicy) (map[string]*cel.Ast, *field.Error) {
	var w weights
	parsed := map[string]*cel.Ast{}
	for path, expression := range expressions(&p.Spec) {
		a, err := w.add(c.env, expression)
		if err != nil {
			return nil, field.Invalid(path, truncate.String(expression, maxErrorDetail), err.Error())
		}
		parsed[expression] = a
	}
	return parsed, nil
}

// expressions yields every expression of a policy, with its field.
func expressions(spec *v1alpha1.WebhookPolicySpec) iter.Seq2[*field.Path, string] {
	return func(yield func(*field.Path, string) bool) {
		at := field.NewPath("spec")
		more := true
		give := func(path *field.Path, text string) {
			more = more && (text == "" || yield(path, text))
		}
		for i, v := range spec.Variables {
			give(at.Child("variables").Index(i).Child("expression"), v.Expression)
		}
		for i, m := range spec.MatchConditions {
			give(at.Child("matchConditions").Index(i).Child("expression"), m.Expression)
		}
		for i, v := range spec.Validations {
			give(at.Child("validations").Index(i).Child("expression"), v.Expression)
			give(at.Child("validations").Index(i).Child("messageExpression"), v.MessageExpression)
		}
		for i, a := range spec.AuditAnnotations {
			give(at.Child("auditAnnotations").Index(i).Child("valueExpression"), a.ValueExpression)
		}
		for i, m := range spec.Mutations {
			if m.ApplyConfiguration != nil {
				give(at.Child("mutations").Index(i).Child("applyConfiguration", "expression"), m.ApplyConfiguration.Expression)
			}
			if m.JSONPatch != nil {
				give(at.Child("mutations").Index(i).Child("jsonPatch", "expression"), m.JSONPatch.Expression)
			}
		}
	}
}

// withoutExpressions returns a copy of a policy without expressions.
func withoutExpressions(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	out := *p
	out.Spec.Variables, out.Spec.MatchConditions, out.Spec.Validations = nil, nil, nil
	out.Spec.AuditAnnotations, out.Spec.Mutations = nil, nil
	return &out
}

var errTooManyNodes = fmt.Errorf("the expressions of this policy have more than %d constants, names, selections and calls together; split the policy", maxNodes)

// add adds an expression, and returns an error if a bound is exceeded. It returns nil for
// an expression that cannot be parsed, which the compiler reports.
func (w *weights) add(env *cel.Env, expression string) (*cel.Ast, error) {
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		// For example "a.b.c.": at most one node for two bytes.
		if w.nodes += len(expression) / 2; w.nodes > maxNodes {
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
	case w.nodes > maxNodes:
		return nil, errTooManyNodes
	case w.calls > maxCalls || w.calls-before > maxCallsOfOne:
		return nil, fmt.Errorf("an expression has more than %d calls of functions and operators, or those of this policy have more than %d together; split the expression into variables, or the policy", maxCallsOfOne, maxCalls)
	case w.openTypes > maxOpenTypes:
		return nil, fmt.Errorf("the expressions of this policy have more than %d macros such as all() and map() and empty lists and maps together; split the policy", maxOpenTypes)
	case computed > maxComputedKeys:
		return nil, fmt.Errorf("more than %d keys of map literals are not constants; split the expression into variables", maxComputedKeys)
	case w.pattern > maxPattern:
		return nil, errors.New("the regular expressions of this policy are too large, with their repetitions; shorten them, or split the policy")
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

// typesIn returns the number of types in a type, at most bound + 1.
func typesIn(t *apiservercel.DeclType, bound int) int {
	if t == nil || bound <= 0 {
		return 1
	}
	n := 1
	for _, part := range []*apiservercel.DeclType{t.KeyType, t.ElemType} {
		if part != nil && n <= bound {
			n += typesIn(part, bound-n)
		}
	}
	return n
}
