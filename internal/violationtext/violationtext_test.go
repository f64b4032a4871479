package violationtext

import (
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// newTexts returns the texts of a policy with a match condition and three validations, of which
// the first has a message and the last does not compile.
func newTexts() Texts {
	compiled := func(expression, message string) celplugin.CompilationResult {
		accessor := &validating.ValidationCondition{Expression: expression, Message: message}
		return celplugin.CompilationResult{ExpressionAccessor: accessor}
	}
	spec := &v1alpha1.WebhookPolicySpec{
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "named", Expression: "object.metadata.name != ''"}},
	}
	return New(spec, []celplugin.CompilationResult{compiled("a", " the message \n"), compiled(" b\n", ""), {}})
}

func TestDenial(t *testing.T) {
	tests := map[string]struct {
		index int
		want  string
	}{
		"a message":                       {index: 0, want: "the message"},
		"no message":                      {index: 1, want: "failed expression: b"},
		"it does not compile":             {index: 2, want: "the validation is false"},
		"no validation has such an index": {index: 3, want: "the validation is false"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			texts := newTexts()
			if got := texts.Denial(tt.index); got != tt.want {
				t.Errorf("Denial(%d) = %q, want %q", tt.index, got, tt.want)
			}
		})
	}
	t.Run("a plugin", func(t *testing.T) {
		texts := New(&v1alpha1.WebhookPolicySpec{Plugin: &v1alpha1.Plugin{Name: v1alpha1.PluginAlwaysDeny}}, nil)
		if got, want := texts.Denial(0), "the plugin AlwaysDeny rejects the request"; got != want {
			t.Errorf("Denial(0) = %q, want %q", got, want)
		}
	})
}

// TestDecisionError has the value "secret" where the text of an error has a value of an object.
func TestDecisionError(t *testing.T) {
	tests := map[string]struct{ message, want string }{
		"a validation": {
			message: "expression ' b\n' resulted in error: no such key: secret",
			want:    "no such key at spec.validations[1].expression",
		},
		"another validation": {
			message: "expression 'c' resulted in error: no such key: secret",
			want:    "no such key",
		},
		"a match condition": {
			message: "[expression 'object.metadata.name != ''' resulted in error: index out of bounds: 7, " +
				"expression 'x' resulted in error: no such key: secret]",
			want: "index out of bounds at spec.matchConditions[0].expression",
		},
		"a message expression": {
			message: "failed messageExpression: type conversion error from 'secret'",
			want:    "conversion failed at a messageExpression",
		},
		"a value that looks like an error": {
			message: "expression ' b\n' resulted in error: no such key: division by zero",
			want:    "no such key at spec.validations[1].expression",
		},
		"an expression that looks like an error": {
			message: "expression 'division by zero' resulted in error: no such key: secret",
			want:    "no such key",
		},
		"a binding":          {message: BindingErrorPrefix + "no params found for secret", want: "no params found"},
		"an unknown binding": {message: BindingErrorPrefix + "secret", want: bindingError},
		"an unknown error":   {message: "secret", want: OtherError},
		"a panic":            {message: Panicked, want: Panicked},
		"an empty text":      {message: "", want: OtherError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			texts := newTexts()
			if got := texts.DecisionError(1, tt.message); got != tt.want {
				t.Errorf("DecisionError(1, %q) = %q, want %q", tt.message, got, tt.want)
			}
		})
	}
}

func TestError(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"a mutation": {
			err:  fmt.Errorf("at a template: %w", &MutationError{Index: 2, Err: errors.New("division by zero")}),
			want: "division by zero at spec.mutations[2]",
		},
		"two mutations": {
			err: errors.Join(
				&MutationError{Index: 0, Err: errors.New("JSON Patch: secret")},
				&MutationError{Index: 1, Err: errors.New("secret")},
			),
			want: "the patch does not apply at spec.mutations[0]; " + OtherError + " at spec.mutations[1]",
		},
		"another error": {err: errors.New("getting namespace \"secret\": gone"), want: "the namespace cannot be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			texts := newTexts()
			if got := texts.Error(tt.err); got != tt.want {
				t.Errorf("Error(%v) = %q, want %q", tt.err, got, tt.want)
			}
		})
	}
}

func TestAnnotationError(t *testing.T) {
	texts := newTexts()
	got := texts.AnnotationError(3, "expression 'x' resulted in error: integer overflow: secret")
	if want := "overflow at spec.auditAnnotations[3].valueExpression"; got != want {
		t.Errorf("AnnotationError(3) = %q, want %q", got, want)
	}
}
