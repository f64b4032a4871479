package policy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/accessreview"
)

// answering gives every question the same answer.
type answering struct {
	decision authorizer.Decision
	reason   string
	err      error
	asked    []context.Context
}

func (a *answering) Authorize(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
	a.asked = append(a.asked, ctx)
	return a.decision, a.reason, a.err
}

type contextKey struct{}

func TestAuthorizer(t *testing.T) {
	const (
		check      = `authorizer.requestResource.check('create')`
		unanswered = "asking for authorization: gone"
	)
	gone := &answering{err: &accessreview.UnavailableError{Err: errors.New("gone")}}
	partial := &answering{decision: authorizer.DecisionAllow, reason: "rule", err: errors.New("one role is missing")}
	validation := func(expression string) string { return `validations: [{expression: "` + expression + `"}]` }
	condition := func(expression string) string {
		return validation("true") + "\n" + `matchConditions: [{name: c, expression: "` + expression + `"}]`
	}
	tests := map[string]struct {
		spec         string
		authorizer   *answering
		wantDecision Decision
		wantMessage  string // part of it; empty where the request is allowed
	}{
		"allowed": {
			spec:         validation(check + ".allowed()"),
			authorizer:   &answering{decision: authorizer.DecisionAllow},
			wantDecision: DecisionAllow,
		},
		"denied": {
			spec:         validation(check + ".allowed()"),
			authorizer:   &answering{decision: authorizer.DecisionDeny},
			wantDecision: DecisionDeny,
			wantMessage:  "failed expression",
		},
		"reason": {
			spec:         validation(check + ".reason() == 'rule'"),
			authorizer:   partial,
			wantDecision: DecisionAllow,
		},
		"error of an answer is read": {
			spec:         validation(check + ".errored() && " + check + ".error() == 'one role is missing'"),
			authorizer:   partial,
			wantDecision: DecisionAllow,
		},
		"no answer, would be refused": {
			spec:         validation(check + ".allowed()"),
			authorizer:   gone,
			wantDecision: DecisionError,
			wantMessage:  unanswered,
		},
		"no answer, would pass": {
			spec:         validation("!" + check + ".allowed()"),
			authorizer:   gone,
			wantDecision: DecisionError,
			wantMessage:  unanswered,
		},
		"no answer, and it is asked about": {
			spec:         validation(check + ".errored()"),
			authorizer:   gone,
			wantDecision: DecisionError,
			wantMessage:  unanswered,
		},
		"no answer, Ignore": {
			spec:         validation(check+".allowed()") + "\nfailurePolicy: Ignore",
			authorizer:   gone,
			wantDecision: DecisionError,
		},
		"no answer for a condition": {
			spec:         condition(check + ".allowed()"),
			authorizer:   gone,
			wantDecision: DecisionError,
			wantMessage:  unanswered,
		},
		"no answer for a condition that passes": {
			spec:         condition("!" + check + ".allowed()"),
			authorizer:   gone,
			wantDecision: DecisionError,
			wantMessage:  unanswered,
		},
		"no authorizer": {
			spec:         validation("!" + check + ".allowed()"),
			wantDecision: DecisionError,
			wantMessage:  "no authorizer is available",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			decisions := map[string]Decision{}
			host := Environment{Now: time.Now, Namespaces: testNamespaces, Observe: observeInto(decisions)}
			if tc.authorizer != nil {
				host.Authorizer = tc.authorizer
			}
			// A policy beside it asks nothing, and is not touched by the failure.
			group := groupFrom(t, map[string]string{"a": tc.spec, "b": validation("true")})
			resp := evaluate(t, group, podInput(t, admission.Create).review(t), host)
			if decisions["a"] != tc.wantDecision || decisions["b"] != DecisionAllow {
				t.Errorf("decisions = %v, want a: %s, b: allow", decisions, tc.wantDecision)
			}
			switch {
			case resp.Allowed != (tc.wantMessage == ""):
				t.Errorf("allowed = %t: %v", resp.Allowed, resp.Result)
			case !resp.Allowed && !strings.Contains(resp.Result.Message, tc.wantMessage):
				t.Errorf("message = %q, want %q in it", resp.Result.Message, tc.wantMessage)
			}
		})
	}
}

func TestAuthorizerIsAskedOnceAndWithinTheRequest(t *testing.T) {
	a := &answering{decision: authorizer.DecisionAllow}
	spec := `validations: [{expression: "authorizer.requestResource.check('get').allowed()"}]`
	group := groupFrom(t, map[string]string{"a": spec, "b": spec})
	ctx := context.WithValue(t.Context(), contextKey{}, "this request")
	if _, err := group.Validate(ctx, podInput(t, admission.Create).review(t), Environment{
		Now:        time.Now,
		Namespaces: testNamespaces,
		Authorizer: a,
	}); err != nil {
		t.Fatal(err)
	}
	if len(a.asked) != 1 || a.asked[0].Value(contextKey{}) != "this request" {
		t.Errorf("asked with %v, want once, with the context of the request", a.asked)
	}
}

func TestMutationThatGetsNoAnswerIsAnError(t *testing.T) {
	decisions := map[string]Decision{}
	host := Environment{
		Now:        time.Now,
		Namespaces: testNamespaces,
		Observe:    observeInto(decisions),
		Authorizer: &answering{err: &accessreview.UnavailableError{Err: errors.New("gone")}},
	}
	group := groupFrom(t, map[string]string{"a": `
matchConditions: [{name: c, expression: "!authorizer.requestResource.check('get').allowed()"}]
mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/spec'}]"}}]`})
	resp, err := group.Mutate(t.Context(), podInput(t, admission.Create).review(t), host)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Allowed || decisions["a"] != DecisionError || !strings.Contains(resp.Result.Message, "asking for authorization: gone") {
		t.Errorf("allowed = %t, decision %s, result %v", resp.Allowed, decisions["a"], resp.Result)
	}
}

// A review that a policy is called for would be followed by that of the
// question, and so on.
func TestPolicyForReviewsAsksNothing(t *testing.T) {
	raw := podInput(t, admission.Create).review(t)
	raw.Resource = metav1.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
	raw.RequestResource = &raw.Resource
	const rules = `matchConstraints: {resourceRules: [{apiGroups: [authorization.k8s.io], apiVersions: [v1], resources: ` +
		`[subjectaccessreviews], operations: [CREATE]}]}` + "\n"
	for name, spec := range map[string]string{
		"an expression": `validations: [{expression: "authorizer.requestResource.check('get').allowed()"}]`,
		"breakGlass":    "validations: [{expression: 'false'}]\nbreakGlass: true",
	} {
		t.Run(name, func(t *testing.T) {
			a := &answering{decision: authorizer.DecisionAllow}
			resp := evaluate(t, groupFrom(t, map[string]string{"a": rules + spec}), raw,
				Environment{Now: time.Now, Namespaces: testNamespaces, Authorizer: a})
			text := resp.String()
			if resp.Allowed || len(a.asked) > 0 || !strings.Contains(text, "a policy that is called for reviews cannot ask for one") {
				t.Errorf("allowed %t after %d questions: %s", resp.Allowed, len(a.asked), text)
			}
		})
	}
}
