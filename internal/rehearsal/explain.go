package rehearsal

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/policy"
)

// maxShown bounds what a warning shows of an expression, in bytes.
const maxShown = 80

// explain suggests how to correct an error of an expression.
func (s *stage) explain(r *request, e *policy.Evaluated) string {
	read := s.read.at(e.Field)
	var cancelled interpreter.EvalCancelledError
	if errors.As(e.Err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		if strings.Contains(read.text, "authorizer") {
			return "each check of the authorizer costs 350000 of 1000000: put the checks into validations of their own"
		}
		return "iterate over fewer elements, or split the expression"
	}
	for _, input := range []string{"object", "oldObject"} {
		if isNull(input, r.Operation) && read.reads(input) && s.comesFrom(input, read, e.State) {
			return explainNull(input, r.Operation)
		}
	}
	if _, after, ok := strings.Cut(e.Err.Error(), "no such key: "); ok { // CEL has no type for this error
		return s.guard(read, e.State, after)
	}
	return ""
}

// loopOverObject recognizes the variable of a loop over an object, which has the names of its
// fields.
func loopOverObject(native *ast.AST, state interpreter.EvalState, variable ast.Expr) string {
	if variable.Kind() != ast.IdentKind {
		return ""
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(native), ast.KindMatcher(ast.ComprehensionKind)) {
		c := e.AsComprehension()
		value, ok := state.Value(c.IterRange().ID())
		if _, isMap := value.(traits.Mapper); !ok || !isMap || c.IterVar() != variable.AsIdent() || c.IterVar2() != "" {
			continue
		}
		if text, err := parser.Unparse(c.IterRange(), native.SourceInfo()); err == nil && len(text) <= maxShown {
			return fmt.Sprintf("%s is an object, and a loop over it gives the names of its fields", text)
		}
	}
	return ""
}

func explainNull(input string, o admissionv1.Operation) string {
	if input == "object" {
		return "object is null on DELETE: read oldObject, or remove DELETE from operations"
	}
	return fmt.Sprintf("oldObject is null on %s: begin with request.operation == %q ||, "+
		"or remove %s from operations", o, o, o)
}

// comesFrom reports whether an expression can have failed because an input is null: not if each
// selection that failed is from a value, or from a variable that does not read the input.
func (s *stage) comesFrom(input string, read *reading, state interpreter.EvalState) bool {
	if read.parsed == nil || state == nil {
		return true
	}
	failed := failedSelections(read, state)
	return len(failed) == 0 || slices.ContainsFunc(failed, func(e ast.NavigableExpr) bool {
		operand, name := parts(e)
		if isSelection(operand) {
			from, variable := parts(operand)
			if isVariables(from) && !s.read.variables[variable].reads(input) {
				return false
			}
		}
		value, known := state.Value(operand.ID())
		return !known || value == types.NullValue || isVariables(operand) && s.read.variables[name].reads(input)
	})
}

// failedSelections returns the selections that fail, although what they select from does not.
func failedSelections(read *reading, state interpreter.EvalState) (out []ast.NavigableExpr) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(read.parsed.NativeRep()), isSelected) {
		if operand, _ := parts(e); failsIn(state, e) && !failsIn(state, operand) {
			out = append(out, e)
		}
	}
	return out
}

func isVariables(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "variables" }

// guard suggests an optional selection for a field that is absent, if possible for the one with a key.
func (s *stage) guard(read *reading, state interpreter.EvalState, key string) string {
	if read.parsed == nil || state == nil {
		return ""
	}
	native := read.parsed.NativeRep()
	var found string
	best := 0
	for _, e := range failedSelections(read, state) {
		operand, name := parts(e)
		if isVariables(operand) {
			return "correct the variable " + name + ", or guard what it reads"
		}
		if text := loopOverObject(native, state, operand); text != "" {
			return text
		}
		text, err := parser.Unparse(operand, native.SourceInfo())
		if err != nil {
			continue
		}
		suggestion := text + optional(name) + rest(e)
		if rank := rankOf(suggestion, name == key); rank > best {
			found, best = suggestion, rank
		}
	}
	if found == "" {
		return "guard the field with has(), or select it with .? and orValue()"
	}
	return "write " + found
}

// rankOf returns how good a suggestion is: the longest one reads most of what is absent. It is 0 for one that is
// too long to be shown.
func rankOf(suggestion string, hasKey bool) int {
	switch {
	case len(suggestion) > maxShown:
		return 0
	case hasKey:
		return maxShown + len(suggestion)
	}
	return len(suggestion)
}

// failsIn reports whether an expression was evaluated to an error.
func failsIn(state interpreter.EvalState, e ast.Expr) bool {
	value, known := state.Value(e.ID())
	return known && types.IsError(value)
}

func isSelected(e ast.NavigableExpr) bool { return isSelection(e) }

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func optional(name string) string {
	if plainName.MatchString(name) {
		return ".?" + name
	}
	return fmt.Sprintf("[?%q]", name)
}

// rest continues a selection, which is optional then, and ends it with a default.
func rest(e ast.NavigableExpr) string {
	out := ""
	for {
		parent, ok := e.Parent()
		if ok && parent.Kind() == ast.SelectKind && parent.AsSelect().IsTestOnly() { // has()
			return out + optional(parent.AsSelect().FieldName()) + ".hasValue()"
		}
		if !ok || !isSelection(parent) {
			return out + defaultFor(parent, e, ok)
		}
		operand, name := parts(parent)
		if operand.ID() != e.ID() {
			return out + defaultFor(parent, e, ok)
		}
		out += optional(name)
		e = parent
	}
}

// defaultFor is the default that the use of a value needs.
func defaultFor(parent, e ast.NavigableExpr, ok bool) string {
	if !ok {
		return ".orValue(false)"
	}
	if parent.Kind() == ast.ComprehensionKind {
		return ".orValue([])"
	}
	if parent.Kind() == ast.ListKind { // such as the keys of a lookup
		return `.orValue("")`
	}
	if parent.Kind() != ast.CallKind {
		return ".hasValue()"
	}
	call := parent.AsCall()
	switch call.FunctionName() {
	case operators.In:
		return ".orValue([])"
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
		return ".orValue(false)"
	case "startsWith", "endsWith", "contains", "matches", "split", "lowerAscii", "size":
		return `.orValue("")`
	}
	for _, arg := range call.Args() {
		if arg.ID() == e.ID() || arg.Kind() != ast.LiteralKind {
			continue
		}
		switch arg.AsLiteral().Type() {
		case types.StringType:
			return `.orValue("")`
		case types.IntType:
			return ".orValue(0)"
		case types.BoolType:
			return ".orValue(false)"
		}
	}
	return ".orValue(...)"
}

// isSelection reports whether an expression selects a field with a constant name, and is an error
// without it.
func isSelection(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		return !e.AsSelect().IsTestOnly()
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index {
			return false
		}
		_, ok := literal(call.Args()[1])
		return ok
	}
	return false
}

func parts(e ast.Expr) (operand ast.Expr, name string) {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().Operand(), e.AsSelect().FieldName()
	}
	name, _ = literal(e.AsCall().Args()[1])
	return e.AsCall().Args()[0], name
}

// unescaped matches a path of a JSON patch whose key has a slash.
var unescaped = regexp.MustCompile(
	`/(?:metadata/(?:labels|annotations)|spec/nodeSelector)/[A-Za-z0-9.-]+\.[a-z]+/[A-Za-z0-9._-]+`)

// absentPath matches errors of JSON patches about a path that does not exist.
var absentPath = regexp.MustCompile("missing path|missing value|non-existent|Unable to")

// explainPatch suggests how to correct a mutation that cannot be applied.
func explainPatch(m admissionregistrationv1.Mutation, text string) string {
	path := ""
	if m.JSONPatch != nil {
		path = cmp.Or(unescaped.FindString(m.JSONPatch.Expression), unescaped.FindString(text))
	}
	switch {
	case path != "":
		i := strings.LastIndex(path, "/")
		return fmt.Sprintf("a / in a key is written as ~1: %s~1%s, or with jsonpatch.escapeKey()", path[:i], path[i+1:])
	case m.JSONPatch != nil && absentPath.MatchString(text):
		return "the parent of the path, or the path itself, is absent: add the parent first, if it is absent, " +
			"or use applyConfiguration"
	case m.ApplyConfiguration != nil && strings.Contains(text, "atomic"):
		return "applyConfiguration cannot change a part of an atomic list, map or struct: use a JSONPatch"
	}
	return ""
}
