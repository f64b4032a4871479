package policy

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// CEL's compiler panics for an optional entry whose value is not optional. That must
// not end the loader, which compiles what is stored.
func TestExpressionsThatMakeTheCompilerPanic(t *testing.T) {
	for _, expression := range []string{`[?object.name] == []`, `{?"a": object.name} == {}`} {
		p := &v1alpha1.WebhookPolicy{}
		p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: expression}}
		p.Spec.Validations = []v1alpha1.Validation{{Expression: expression}, {Expression: "variables.v && " + expression}}
		_, errs := NewCompiler().Compile(p)
		if len(errs) != 3 || !strings.Contains(errs.ToAggregate().Error(), "needs an optional value") {
			t.Errorf("%s: got %v, want an error for each expression", expression, errs)
		}
	}
}
