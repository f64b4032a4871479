package podtemplate

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// OutsideField returns the first field in a mutation of a Pod that a template does not
// have, as far as the expression names it; empty if there is none.
func OutsideField(root ast.Expr) (name string) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if name != "" || e.Kind() != ast.StructKind {
			return
		}
		s := e.AsStruct()
		for _, f := range s.Fields() {
			member := f.AsStructField()
			switch {
			case s.TypeName() == "Object" && member.Name() != "metadata" && member.Name() != "spec":
				name = member.Name()
			case s.TypeName() == "Object.metadata" && !slices.Contains(copiedMetadata, member.Name()):
				name = "metadata." + member.Name()
			case s.TypeName() == mutation.JSONPatchTypeName && member.Name() == "path" && member.Value().Kind() == ast.LiteralKind:
				if path, ok := member.Value().AsLiteral().(types.String); ok && !inTemplate(string(path)) {
					name = strings.ReplaceAll(strings.Trim(string(path), "/"), "/", ".")
				}
			}
		}
	}))
	return name
}

// inTemplate reports whether a JSON pointer into a Pod is also one into a template.
func inTemplate(pointer string) bool {
	parts := strings.Split(pointer, "/")
	switch {
	case len(parts) < 2 || parts[0] != "":
		return true // not a pointer into an object: the mutation fails
	case parts[1] == "spec":
		return true
	}
	return parts[1] == "metadata" && len(parts) > 2 && slices.Contains(copiedMetadata, parts[2])
}
