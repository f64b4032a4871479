package uncounted

import (
	"maps"
	"regexp"
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// patterns are regular expressions, each compiled at its first use, nil if it is none. They are literals of policies, so
// that no request can add one.
type patterns map[string]func() *regexp.Regexp

// patternsOf returns the literals in the lists and maps of an expression that can be patterns. It also reports whether a
// pattern of the expression is no literal: then it can be one of a list, often of a variable.
func patternsOf(root ast.Expr) (found patterns, computed bool) {
	add := func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind {
			return
		}
		text, ok := e.AsLiteral().(types.String)
		if !ok || regexp.QuoteMeta(string(text)) == string(text) {
			return
		}
		if found == nil {
			found = patterns{}
		}
		found[string(text)] = sync.OnceValue(func() *regexp.Regexp {
			compiled, _ := regexp.Compile(string(text)) // an error is one of the call
			return compiled
		})
	}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ListKind:
			for _, element := range e.AsList().Elements() {
				add(element)
			}
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				add(entry.AsMapEntry().Value())
			}
		case ast.CallKind:
			computed = computed || isComputedMatch(e.AsCall())
		}
	}))
	return found, computed
}

func isComputedMatch(call ast.CallExpr) bool {
	args := call.Args()
	return call.FunctionName() == overloads.Matches && len(args) > 0 && args[len(args)-1].Kind() != ast.LiteralKind
}

// addPatterns adds the patterns of a policy in which one is computed.
func (b *Batch) addPatterns(p *Policy) {
	found, computed := patterns{}, false
	all := [][]*Expression{p.Conditions, p.Validations, p.Messages, p.Annotations}
	for _, v := range p.Variables {
		all = append(all, []*Expression{v.Expression})
	}
	for _, list := range all {
		for _, e := range list {
			if e != nil {
				maps.Copy(found, e.patterns)
				computed = computed || e.computesPattern
			}
		}
	}
	if !computed || len(found) == 0 {
		return
	}
	if b.patterns == nil {
		b.patterns = patterns{}
	}
	maps.Copy(b.patterns, found)
}

// computedMatch is a call of matches whose pattern is no literal. The library compiles the pattern at each call, which
// takes a hundred times as long as most searches.
type computedMatch struct{ interpreter.InterpretableCall }

func computedMatchOf(call interpreter.InterpretableCall) *computedMatch {
	args := call.Args()
	if call.Function() != overloads.Matches || len(args) != 2 {
		return nil
	}
	if _, ok := args[1].(interpreter.InterpretableConst); ok { // the library compiles it once
		return nil
	}
	return &computedMatch{call}
}

// Exec implements interpreter.InterpretableV2.
func (m *computedMatch) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := m.Args()
	text, pattern := args[0].Exec(frame), args[1].Exec(frame)
	in, ok := text.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(text)
	}
	if of, ok := pattern.(types.String); ok {
		if compiled := patternOf(frame, string(of)); compiled != nil {
			return types.Bool(compiled.MatchString(string(in)))
		}
	}
	return in.Match(pattern)
}

// Eval implements interpreter.Interpretable.
func (m *computedMatch) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// patternOf returns a pattern of the batch, nil if it has none with this text.
func patternOf(frame *interpreter.ExecutionFrame, text string) *regexp.Regexp {
	root, _ := frame.ResolveName(celplugin.VariableVarName)
	if v, ok := root.(*variableValues); ok {
		if compile := v.evaluation.batch.patterns[text]; compile != nil {
			return compile()
		}
	}
	return nil
}
