package policy

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/test/exceptioncases"
)

// randomExceptions writes cases at random.
func randomExceptions(numbers *rand.Rand) exceptioncases.Random {
	return exceptioncases.Random{Rand: numbers, Vocabulary: exceptioncases.Vocabulary{
		Policies:    []string{"p", "p", "p", "p", "p", "p", "q"},
		Groups:      []string{"", "", "", "", "", "", "apps"},
		Resources:   []string{"pods", "pods", "pods", "pods", "pods/ephemeralcontainers", "deployments"},
		Names:       []string{"web", "w*", "*b", "w*b", "web*web", "api", "*", "we"},
		Validations: [][]string{{"*"}, {"has-team"}, {"has-team", "has-owner"}, {"has-owner"}},
		Labels:      map[string][]string{"app": {"web", "api"}, "tier": {"web", "api"}},
	}}
}

// randomException returns one with times of a few seconds around the request.
func randomException(r exceptioncases.Random, name string) exceptioncases.Exception {
	x := exceptioncases.Exception{Name: name, Created: new(-r.IntN(5)), WebhookPolicyExceptionSpec: r.Spec()}
	x.Namespace = new(exceptioncases.OneOf(r.Rand, "shop", "shop", "shop", "shop", "shop", "shop", "bank", ""))
	if r.IntN(4) > 0 {
		x.Ends = new(r.IntN(7) - 1)
	}
	return x
}

// evaluateCEL evaluates an expression over a request without the code of this repository.
func evaluateCEL(t *testing.T, expression string, request *admissionv1.AdmissionRequest) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("request", cel.DynType), cel.Variable("object", cel.DynType),
		cel.Variable("oldObject", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	compiled, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("compiling %s: %v", expression, issues.Err())
	}
	program, err := env.Program(compiled)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	result, _, err := program.Eval(map[string]any{"request": decoded, "object": decoded["object"], "oldObject": decoded["oldObject"]})
	if err != nil {
		t.Fatalf("evaluating %s: %v", expression, err)
	}
	return result.Value() == true
}

// TestRandomExceptions compares decisions about random exceptions with those of an independent
// matcher.
func TestRandomExceptions(t *testing.T) {
	r := randomExceptions(rand.New(rand.NewPCG(*seed, 39)))
	counts := map[Decision]int{}
	for range *randomPolicies * 5 {
		c := exceptioncases.Case{Labels: r.SomeLabels(), OldLabels: r.SomeLabels(), Operation: exceptioncases.OneOf(r.Rand, "CREATE", "UPDATE")}
		if r.IntN(6) == 0 {
			c.Operation, c.Subresource = "UPDATE", "ephemeralcontainers"
		}
		of := exceptioncases.Decided{Policy: "p", Validation: "has-team", Now: exceptioncases.Noon(), Longest: int64(max(0, r.IntN(12)-5))}
		if of.Longest > 0 {
			c.Changes = map[string]any{"exceptions": map[string]any{"maxDurationSeconds": of.Longest}}
		}
		var given []exceptioncases.Exception
		for i := range 1 + r.IntN(4) {
			given = append(given, randomException(r, string(rune('a'+i))))
		}
		slices.SortStableFunc(given, func(a, b exceptioncases.Exception) int { return *a.Created - *b.Created })
		c.Given = &given
		x := newExceptionCase(t, &c)
		want, by := DecisionDeny, ""
		all := c.Exceptions()
		if i := slices.IndexFunc(all, func(e v1alpha1.Exception) bool { return evaluateCEL(t, of.Expression(e), x.raw) }); i >= 0 {
			want, by = DecisionExcepted, "p has-team by "+exceptions.Key{Namespace: "shop", Name: all[i].GetName()}.String()
		}
		counts[want]++
		resp := evaluate(t, x.group, x.raw, x.host)
		if got := x.decisions["p"]; got != want || by != "" && resp.AuditAnnotations[auditExceptedKey] != by {
			t.Fatalf("the decision is %q %q, want %q %q; maximum %d, request %s %s, exceptions %+v",
				got, resp.AuditAnnotations[auditExceptedKey], want, by, of.Longest, c.Operation, x.raw.Object.Raw, given)
		}
	}
	if counts[DecisionExcepted] < 50 || counts[DecisionDeny] < 50 {
		t.Errorf("the cases are too much alike: %v", counts)
	}
}
