package policy

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/ostiary/ostiary/internal/truncate"
)

// checkTemplateMutations rejects mutations of a policy with podTemplates that name a field
// that a template does not have. What an expression computes is checked when it is
// evaluated.
func (b *builder) checkTemplateMutations() {
	if b.policy.Spec.PodTemplates == nil {
		return
	}
	at := field.NewPath("spec", "mutations")
	for i, m := range b.policy.Spec.Mutations {
		path, text := at.Index(i).Child("jsonPatch", "expression"), ""
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			path, text = at.Index(i).Child("applyConfiguration", "expression"), m.ApplyConfiguration.Expression
		case m.JSONPatch != nil:
			text = m.JSONPatch.Expression
		}
		parsed := b.parsed[text]
		if parsed == nil { // it does not compile, which is another error
			continue
		}
		if name := outsideTemplate(parsed.NativeRep().Expr()); name != "" {
			b.errs = append(b.errs, field.Invalid(path, truncate.String(text, maxErrorDetail), errNotInTemplate(name).Error()+"; change it in a policy without podTemplates"))
		}
	}
}

// outsideTemplate returns the first field in a mutation of a Pod that a template does not
// have, as far as the expression names it; empty if there is none.
func outsideTemplate(root ast.Expr) (name string) {
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
			case s.TypeName() == "Object.metadata" && !slices.Contains(templateMetadata, member.Name()):
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
	return parts[1] == "metadata" && len(parts) > 2 && slices.Contains(templateMetadata, parts[2])
}
