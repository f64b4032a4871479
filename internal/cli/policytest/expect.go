package policytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// Keys of audit annotations that are no values of policies.
const (
	validationFailure = "validation_failure"
	leftOut           = "left_out"
	excepted          = "excepted"
)

// failure is an evaluation without a decision.
type failure struct{ policy, text string }

// failuresOf returns the errors of an invocation, whatever failurePolicy decides.
func failuresOf(i policy.Invoked) (out []failure) {
	if i.Err != nil {
		out = append(out, failure{i.Policy, i.Err.Error()})
	}
	for _, d := range i.Decisions {
		if d.Failed {
			out = append(out, failure{i.Policy, d.Message})
		}
	}
	return out
}

// failedValidations returns the names of the validations of an invocation that are false.
func failedValidations(i policy.Invoked) (out []string) {
	for _, d := range i.Decisions {
		if d.Validation != "" && (d.Denied && !d.Failed || d.Ratcheted || d.Excepted != "") {
			out = append(out, d.Validation)
		}
	}
	return out
}

func sortedSet(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// compare compares a result with the expectation of the case.
func (c *Case) compare(ctx context.Context, r *offline.Result, failures []failure, failed []string) ([]Problem, error) {
	errs := evaluationErrors(r, failures)
	if c.Expect.Decision == v1alpha1.Error {
		return compareError(r, &c.Expect, errs), nil
	}
	if len(errs) > 0 {
		return errs, nil
	}
	var out []Problem
	problem := func(field, format string, args ...any) {
		out = append(out, Problem{Field: "expect." + field, Text: fmt.Sprintf(format, args...)})
	}
	e := &c.Expect
	if got := decisionOf(r, e); got != e.Decision {
		problem("decision", "got %s, want %s%s", got, e.Decision, detailsOf(r))
		return out, nil
	}
	compareTexts(r, e, problem)
	compareStatus(r, e, problem)
	if got, want := sortedSet(failed), sortedSet(e.Validations); e.Validations != nil && !slices.Equal(got, want) {
		problem("validations", "got %s, want %s", quoted(got), quoted(want))
	}
	different, err := c.compareObject(ctx, r.Object)
	if different != nil {
		out = append(out, *different)
	}
	return out, err
}

// compareError compares the errors of an evaluation with an expected one.
func compareError(r *offline.Result, e *v1alpha1.Expectation, errs []Problem) []Problem {
	switch {
	case len(errs) == 0:
		return []Problem{{Field: "expect.decision", Text: fmt.Sprintf("got %s, want Error%s", decisionOf(r, e), detailsOf(r))}}
	case !slices.ContainsFunc(errs, func(p Problem) bool { return strings.Contains(p.Text, e.Message) }):
		return []Problem{{Field: "expect.message", Text: fmt.Sprintf("the error does not contain %q: %s", e.Message, errs[0].Text)}}
	}
	return nil
}

// compareTexts compares messages, warnings and audit annotations.
func compareTexts(r *offline.Result, e *v1alpha1.Expectation, problem func(field, format string, args ...any)) {
	said := messagesOf(r)
	if e.Message != "" && !slices.ContainsFunc(said, func(text string) bool { return says(text, e.Message) }) {
		problem("message", "got %s, want %q", quoted(said), e.Message)
	}
	if e.Causes != nil && !sameTexts(causesOf(r), e.Causes) {
		problem("causes", "got %s, want %s", quoted(causesOf(r)), quoted(e.Causes))
	}
	if e.Warnings != nil && !sameTexts(r.Warnings, e.Warnings) {
		problem("warnings", "got %s, want %s", quoted(r.Warnings), quoted(e.Warnings))
	}
	if e.AuditAnnotations != nil {
		for _, text := range differentAnnotations(r.AuditAnnotations, e.AuditAnnotations) {
			problem("auditAnnotations", "%s", text)
		}
	}
}

// compareStatus compares the reason and the code of a denial.
func compareStatus(r *offline.Result, e *v1alpha1.Expectation, problem func(field, format string, args ...any)) {
	if r.Status == nil {
		return
	}
	if e.Reason != "" && string(r.Status.Reason) != e.Reason {
		problem("reason", "got %q, want %q", r.Status.Reason, e.Reason)
	}
	if e.Code != 0 && r.Status.Code != e.Code {
		problem("code", "got %d, want %d", r.Status.Code, e.Code)
	}
}

// evaluationErrors returns a problem for each policy that could not decide.
func evaluationErrors(r *offline.Result, failures []failure) (out []Problem) {
	for _, f := range failures {
		out = append(out, Problem{Field: "expect", Text: fmt.Sprintf("the policy %s failed with an error, which only the decision Error allows: %s", f.policy, f.text)})
	}
	if len(out) > 0 {
		return out
	}
	for _, o := range r.Outcomes {
		if o.Decision == policy.DecisionError {
			text := "unknown error"
			if o.Err != nil {
				text = o.Err.Error()
			}
			out = append(out, Problem{Field: "expect", Text: fmt.Sprintf("the policy %s failed with an error, which only the decision Error allows: %s", o.Policy, text)})
		}
	}
	return out
}

// decisionOf returns the decision of a result. A result with several effects has the
// decision that is expected, if that is one of them and the others are expected too.
func decisionOf(r *offline.Result, e *v1alpha1.Expectation) v1alpha1.Decision {
	_, audited := r.AuditAnnotations[validationFailure]
	var effects []v1alpha1.Decision
	switch {
	case !r.Allowed:
		return v1alpha1.Deny
	case len(r.Warnings) > 0 && (e.Decision == v1alpha1.Warn || e.Warnings == nil):
		effects = append(effects, v1alpha1.Warn)
	}
	if audited {
		effects = append(effects, v1alpha1.Audit)
	}
	if r.Changed && (e.Decision == v1alpha1.Mutate || e.Object == nil && e.ObjectFile == "") {
		effects = append(effects, v1alpha1.Mutate)
	}
	switch {
	case len(effects) == 0 && r.AuditAnnotations[excepted] != "":
		return v1alpha1.Excepted
	case len(effects) == 0:
		return v1alpha1.Allow
	case slices.Contains(effects, e.Decision):
		return e.Decision
	}
	return effects[0]
}

// detailsOf explains an unexpected decision.
func detailsOf(r *offline.Result) string {
	if said := messagesOf(r); len(said) > 0 {
		return ": " + strings.Join(said, "; ")
	}
	return ""
}

// Messages returns the messages of failed validations without the names of policies.
func Messages(r *offline.Result) []string {
	out := messagesOf(r)
	for i, text := range out {
		out[i] = help.ReplaceAllString(text[len(subject.FindString(text)):], "")
	}
	return out
}

// messagesOf returns the messages of failed validations: of denials, warnings and the audit
// log.
func messagesOf(r *offline.Result) []string {
	out := slices.Concat(causesOf(r), r.Warnings)
	var audited []struct {
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(r.AuditAnnotations[validationFailure]), &audited) == nil {
		for _, a := range audited {
			out = append(out, a.Message)
		}
	}
	return out
}

func causesOf(r *offline.Result) (out []string) {
	for _, denial := range r.Denials {
		if denial.Details == nil || len(denial.Details.Causes) == 0 {
			out = append(out, denial.Message)
			continue
		}
		for _, cause := range denial.Details.Causes {
			out = append(out, cause.Message)
		}
	}
	return out
}

// The beginning and the end of messages of policies.
var (
	subject = regexp.MustCompile(`^(Validation failed for )?WebhookPolicy '[^']*'( with binding '[^']*')?( denied request| allowed request, because the stored object fails it too)?: `)
	help    = regexp.MustCompile(` \(see https://[^ )]*\)$`)
)

// says reports whether a text is the wanted one, with or without the name of the policy and
// the link to its help.
func says(text, want string) bool {
	bare := text[len(subject.FindString(text)):]
	return text == want || bare == want || help.ReplaceAllString(bare, "") == want
}

func sameTexts(got, want []string) bool { return slices.EqualFunc(got, want, says) }

func quoted(texts []string) string { return fmt.Sprintf("%q", texts) }

func differentAnnotations(got, want map[string]string) (out []string) {
	keys := slices.Sorted(maps.Keys(got))
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[key]; !ok {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		g, isGot := got[key]
		w, isWanted := want[key]
		switch {
		case !isWanted && (key == validationFailure || key == leftOut):
		case !isGot:
			out = append(out, fmt.Sprintf("%s is absent, want %q", key, w))
		case !isWanted:
			out = append(out, fmt.Sprintf("%s is %q, want none", key, g))
		case g != w:
			out = append(out, fmt.Sprintf("%s is %q, want %q", key, g, w))
		}
	}
	return out
}

// compareObject compares the object after mutations.
func (c *Case) compareObject(ctx context.Context, got []byte) (*Problem, error) {
	field, want := "expect.object", []byte(nil)
	switch {
	case c.Expect.Object != nil:
		want = c.Expect.Object.Raw
	case c.golden != "":
		field = "expect.objectFile"
		object, err := c.readGolden(ctx)
		if errors.Is(err, fs.ErrNotExist) {
			return &Problem{Field: field, Text: c.golden + " does not exist: run with --update to write it"}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: reading the object: %w", c.Position(field), err)
		}
		want = object
	default:
		return nil, nil //nolint:nilnil // no expectation, no problem
	}
	var gotTree, wantTree any
	if err := errors.Join(json.Unmarshal(got, &gotTree), json.Unmarshal(want, &wantTree)); err != nil {
		return nil, fmt.Errorf("%s: reading the object: %w", c.Position(field), err)
	}
	if equality.Semantic.DeepEqual(gotTree, wantTree) {
		return nil, nil //nolint:nilnil // no problem
	}
	return &Problem{Field: field, Text: "the object differs (-want +got):\n" + output.Diff("want", want, got)}, nil
}

// readGolden returns the object of objectFile.
func (c *Case) readGolden(ctx context.Context) ([]byte, error) {
	text, err := c.suite.bounds.golden.ReadFile(c.golden)
	if err != nil {
		return nil, err
	}
	objects, err := load.Text(ctx, c.golden, text)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s: the file has %d objects, want one", c.golden, len(objects))
	}
	return objects[0].Raw, nil
}
