package offline

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/test/exceptioncases"
)

// filesOf returns the files of a case, in YAML.
func filesOf(t *testing.T, c *exceptioncases.Case) string {
	t.Helper()
	p, err := c.Policy()
	if err != nil {
		t.Fatal(err)
	}
	documents := []any{p}
	for _, x := range c.Exceptions() {
		documents = append(documents, x)
	}
	for _, data := range c.Params {
		documents = append(documents, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": data,
			"metadata": map[string]any{"name": data["name"], "namespace": exceptioncases.Namespace, "labels": map[string]any{"of": "case"}},
		})
	}
	var out strings.Builder
	for _, document := range documents {
		text, err := yaml.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(text))
	}
	return out.String()
}

// TestExceptionCases shows that the command line decides with exceptions of files as admission does.
func TestExceptionCases(t *testing.T) {
	cases, err := exceptioncases.All()
	if err != nil {
		t.Fatal(err)
	}
	compiler := policy.NewCompiler()
	for i := range cases {
		c := &cases[i]
		if c.OnePhase || c.RequestName != "" { // a request passes both phases with its own name
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			in, err := Sort(parse(t, filesOf(t, c)))
			if err != nil {
				t.Fatal(err)
			}
			apis, err := NewAPIs(compiler.Engine(), nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := NewEngine(in.Policies, compiler, apis)
			if err != nil {
				t.Fatal(err)
			}
			answers := Answers{}
			if c.BreakGlass {
				answers = Answers{{Verb: "breakglass", Decision: Allow}}
			}
			w := NewWorld(apis, nil, in.Objects, answers)
			w.SetTime(exceptioncases.Noon())
			w.AddExceptions(in.Exceptions)
			checkCase(t, c, e, w)
		})
	}
}

func checkCase(t *testing.T, c *exceptioncases.Case, e *Engine, w *World) {
	t.Helper()
	request, err := c.Request()
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Evaluate(t.Context(), request, w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	phase := registration.PhaseValidate
	if c.Mutating {
		phase = registration.PhaseMutate
	}
	i := slices.IndexFunc(got.Outcomes, func(o Outcome) bool { return o.Phase == phase })
	if i < 0 {
		t.Fatalf("the policy has no outcome: %+v", got)
	}
	if decision := string(got.Outcomes[i].Decision); decision != c.Want || got.AuditAnnotations[exceptedKey] != c.By {
		t.Errorf("the decision is %q, %q, want %q, %q: %v", decision, got.AuditAnnotations[exceptedKey], c.Want, c.By, got.Status)
	}
	if denies := c.Want == "deny" || c.Denies; got.Allowed == denies {
		t.Errorf("the request is allowed: %t, %v", got.Allowed, got.Status)
	}
}

// TestInactiveExceptions shows which exceptions of files have no effect.
func TestInactiveExceptions(t *testing.T) {
	cases, err := exceptioncases.All()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"at the end": "Expired", "exception from another policy": "PolicyNotFound", "no spec.exceptions": "NoExceptionsAllowed",
		"another validation": "UnknownValidation", "invalid selector": "InvalidSelector", "condition with request": "InvalidCondition",
		"maximum without an end": "NoExpirationTime", "a second more than the maximum": "ExceedsMaxDuration", "same namespace": "",
	}
	for i := range cases {
		reason, isWanted := want[cases[i].Name]
		if !isWanted {
			continue
		}
		delete(want, cases[i].Name)
		t.Run(cases[i].Name, func(t *testing.T) {
			text := filesOf(t, &cases[i])
			e, w := setUp(t, text, policy.NewCompiler())
			in, err := Sort(parse(t, text))
			if err != nil {
				t.Fatal(err)
			}
			w.SetTime(exceptioncases.Noon())
			got := w.Inactive(in.Exceptions, e)
			if reason == "" && len(got) > 0 || reason != "" && (len(got) != 1 || got[0].Reason != reason || got[0].Message == "") {
				t.Errorf("inactive are %+v, want %q", got, reason)
			}
		})
	}
	if len(want) > 0 {
		t.Errorf("the table lacks %v", want)
	}
}
