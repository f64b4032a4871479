package celsyntax

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// LookupReaders says which expressions of a policy read lookups, themselves or by a variable.
type LookupReaders struct {
	parsed    Trees
	variables map[string]bool // those that read lookups
}

// LookupReadersOf returns the readers of a policy. A variable can read those before it.
func LookupReadersOf(spec *v1alpha1.WebhookPolicySpec, parsed Trees) LookupReaders {
	r := LookupReaders{parsed: parsed, variables: map[string]bool{}}
	if len(spec.Lookups) == 0 {
		return r
	}
	for _, v := range spec.Variables {
		if _, reads := r.Reads(v.Expression); reads {
			r.variables[v.Name] = true
		}
	}
	return r
}

// Variable reports whether a variable reads lookups.
func (r LookupReaders) Variable(name string) bool { return r.variables[name] }

// Reads reports whether an expression reads lookups, and through which variable; "" if it names lookups itself.
func (r LookupReaders) Reads(expression string) (by string, reads bool) {
	parsed := r.parsed[expression]
	if parsed == nil {
		return "", false
	}
	return r.readsIn(parsed)
}

func (r LookupReaders) readsIn(parsed *cel.Ast) (by string, reads bool) {
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == LookupsVarName {
			by, reads = "", true
		}
		operand, name, ok := selectedField(e)
		if ok && !reads && operand.Kind() == ast.IdentKind &&
			strings.TrimPrefix(operand.AsIdent(), ".") == celplugin.VariableVarName && r.variables[name] {
			by, reads = name, true
		}
	}))
	return by, reads
}
