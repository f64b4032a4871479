package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/accessreview"
)

// glass lets users skip the policies that it names, and keeps what it is asked.
type glass struct {
	skippable map[string]bool
	err       error
	panics    bool
	asked     []string
}

func (g *glass) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	g.asked = append(g.asked, fmt.Sprintf("%s %s %s/%s %s", a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetName()))
	if g.panics {
		panic("lost")
	}
	if g.skippable[a.GetName()] {
		return authorizer.DecisionAllow, "", g.err
	}
	return authorizer.DecisionNoOpinion, "", g.err
}

// asks is what is asked about policies.
func asks(names ...string) []string {
	var out []string
	for _, name := range names {
		out = append(out, "alice breakglass admission.ostiary.dev/webhookpolicies "+name)
	}
	return out
}

// skips returns the warnings about skipped policies, of which a list has the names.
func skips(names string) []string {
	var out []string
	for name := range strings.SplitSeq(names, ", ") {
		if name != "" {
			out = append(out, "WebhookPolicy '"+name+"' skipped: you have the verb breakglass")
		}
	}
	return out
}

func TestBreakGlassOfValidations(t *testing.T) {
	const (
		on      = "breakGlass: true\n"
		refuses = "validations: [{expression: 'false', message: refused}]\n"
		passes  = "validations: [{expression: 'true'}]\n"
		fails   = "validations: [{expression: \"object.metadata.labels['missing'] == ''\"}]\n"
		params  = refuses + "paramKind: {apiVersion: v1, kind: ConfigMap}\n" +
			"bindings: [{name: b, paramRef: {name: p, parameterNotFoundAction: Deny}}]\n"
	)
	gone := &accessreview.UnavailableError{Err: errors.New("gone")}
	all := map[string]bool{"a": true, "b": true, "c": true}
	tests := map[string]struct {
		specs    map[string]string
		glass    glass
		everyone bool // Host.BreakGlass

		wantDenied   string // who denies
		wantAsked    []string
		wantSkipped  string
		wantDecision map[string]Decision
		wantWarnings []string
	}{
		"may skip": {
			specs:        map[string]string{"a": on + refuses},
			glass:        glass{skippable: all},
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"may not": {
			specs:        map[string]string{"a": on + refuses},
			wantDenied:   "a",
			wantAsked:    asks("a"),
			wantDecision: map[string]Decision{"a": DecisionDeny},
		},
		"off": {
			specs:        map[string]string{"a": refuses},
			glass:        glass{skippable: all},
			wantDenied:   "a",
			wantDecision: map[string]Decision{"a": DecisionDeny},
		},
		"off, on for all": {
			specs:        map[string]string{"a": refuses},
			glass:        glass{skippable: all},
			everyone:     true,
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"passes anyway": {
			specs:        map[string]string{"a": on + passes},
			glass:        glass{skippable: all},
			wantDecision: map[string]Decision{"a": DecisionAllow},
		},
		"does not match": {
			specs:        map[string]string{"a": on + refuses + "matchConditions: [{name: no, expression: 'false'}]\n"},
			glass:        glass{skippable: all},
			wantDecision: map[string]Decision{"a": DecisionSkip},
		},
		"an error that refuses": {
			specs:        map[string]string{"a": on + fails},
			glass:        glass{skippable: all},
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"an error that passes": {
			specs:        map[string]string{"a": on + fails + "failurePolicy: Ignore\n"},
			glass:        glass{skippable: all},
			wantDecision: map[string]Decision{"a": DecisionError},
		},
		"a binding in error": {
			specs:        map[string]string{"a": on + params},
			glass:        glass{skippable: all},
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"an annotation in error": {
			specs: map[string]string{
				"a": on + passes + "auditAnnotations: [{key: k, valueExpression: \"string(object.metadata.labels['missing'])\"}]\n",
			},
			glass: glass{skippable: all}, wantAsked: asks("a"), wantSkipped: "a", wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"some of several": {
			specs: map[string]string{"a": on + refuses, "b": refuses, "c": on + refuses, "d": on + refuses}, glass: glass{skippable: all},
			wantDenied: "b,d", wantAsked: asks("a", "c", "d"), wantSkipped: "a, c",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass, "b": DecisionDeny, "c": DecisionBreakGlass, "d": DecisionDeny},
		},
		"what does not refuse stays": {
			specs:     map[string]string{"a": on + refuses + "bindings: [{name: d}, {name: w, validationActions: [Warn]}]\n"},
			glass:     glass{skippable: all},
			wantAsked: asks("a"), wantSkipped: "a", wantDecision: map[string]Decision{"a": DecisionBreakGlass},
			wantWarnings: []string{"Validation failed for WebhookPolicy 'a' with binding 'w': refused"},
		},
		"nothing but a warning": {
			specs: map[string]string{"a": on + refuses + "bindings: [{name: w, validationActions: [Warn]}]\n"}, glass: glass{skippable: all},
			wantDecision: map[string]Decision{"a": DecisionWarn},
			wantWarnings: []string{"Validation failed for WebhookPolicy 'a' with binding 'w': refused"},
		},
		"no answer": {
			specs: map[string]string{"a": on + refuses, "b": passes}, glass: glass{err: gone}, wantDenied: "a", wantAsked: asks("a"),
			wantDecision: map[string]Decision{"a": DecisionDeny, "b": DecisionAllow},
			wantWarnings: []string{"WebhookPolicy 'a' was not skipped: whether you may skip it is not known: asking for authorization: gone"},
		},
		"allowed, with an error": {
			specs: map[string]string{"a": on + refuses}, glass: glass{
				skippable: all,
				err:       errors.New("a role is missing"),
			}, wantDenied: "a", wantAsked: asks("a"),
			wantDecision: map[string]Decision{"a": DecisionDeny},
			wantWarnings: []string{"WebhookPolicy 'a' was not skipped: whether you may skip it is not known: a role is missing"},
		},
		"a panic": {
			specs:        map[string]string{"a": on + refuses},
			glass:        glass{skippable: all, panics: true},
			wantDenied:   "a",
			wantAsked:    asks("a"),
			wantDecision: map[string]Decision{"a": DecisionDeny},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Observe, host.Authorizer, host.BreakGlass = observeInto(decisions), &tt.glass, tt.everyone
			resp := evaluate(t, groupFrom(t, tt.specs), podInput(t, admission.Create).review(t), host)
			denied := ""
			if !resp.Allowed {
				denied = deniers(resp.Result.Message)
			}
			got := []any{resp.Allowed, denied, tt.glass.asked, resp.AuditAnnotations["breakglass"], decisions, resp.Warnings}
			warnings := slices.Concat(tt.wantWarnings, skips(tt.wantSkipped))
			want := []any{tt.wantDenied == "", tt.wantDenied, tt.wantAsked, tt.wantSkipped, tt.wantDecision, warnings}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("allowed, deniers, questions, annotation, decisions, warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// deniers are the policies that a message names.
func deniers(message string) string {
	var names []string
	for line := range strings.Lines(message) {
		_, rest, _ := strings.Cut(line, "WebhookPolicy '")
		name, _, _ := strings.Cut(rest, "'")
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

func TestBreakGlassOfMutations(t *testing.T) {
	const on = "breakGlass: true\n"
	labels := func(key string) string { return mutations(label(key, `"x"`)) }
	broken := mutations(patching(op("remove", "/spec/missing", "")))
	all := map[string]bool{"a": true, "b": true}
	tests := map[string]struct {
		specs        map[string]string
		glass        glass
		wantPatch    string // what it has to hold; "" is no patch
		wantDenied   bool
		wantAsked    []string
		wantSkipped  string
		wantDecision map[string]Decision
		wantWarnings []string
	}{
		"may skip": {
			specs:        map[string]string{"a": on + labels("a")},
			glass:        glass{skippable: all},
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"may not": {
			specs:        map[string]string{"a": on + labels("a")},
			wantPatch:    "/metadata/labels/a",
			wantAsked:    asks("a"),
			wantDecision: map[string]Decision{"a": DecisionMutate},
		},
		"off": {
			specs:        map[string]string{"a": labels("a")},
			glass:        glass{skippable: all},
			wantPatch:    "/metadata/labels/a",
			wantDecision: map[string]Decision{"a": DecisionMutate},
		},
		"one of two": {
			specs:        map[string]string{"a": on + labels("a"), "b": labels("b")},
			glass:        glass{skippable: all},
			wantPatch:    "/metadata/labels/b",
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass, "b": DecisionMutate},
		},
		"no effect": {
			specs:        map[string]string{"a": on + labels("a") + "matchConditions: [{name: no, expression: 'false'}]\n"},
			glass:        glass{skippable: all},
			wantDecision: map[string]Decision{"a": DecisionSkip},
		},
		"refuses": {
			specs:        map[string]string{"a": on + broken},
			glass:        glass{skippable: all},
			wantAsked:    asks("a"),
			wantSkipped:  "a",
			wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"refuses, off": {
			specs:        map[string]string{"a": broken},
			glass:        glass{skippable: all},
			wantDenied:   true,
			wantDecision: map[string]Decision{"a": DecisionError},
		},
		"fails, Ignore": {
			specs:        map[string]string{"a": on + broken + "failurePolicy: Ignore\n"},
			glass:        glass{skippable: all},
			wantDecision: map[string]Decision{"a": DecisionError},
		},
		"several bindings": {
			specs: map[string]string{"a": on + labels("a") + "bindings: [{name: one}, {name: two}]\n"}, glass: glass{skippable: all},
			wantAsked: asks("a"), wantSkipped: "a", wantDecision: map[string]Decision{"a": DecisionBreakGlass},
		},
		"no answer": {
			specs: map[string]string{"a": on + labels("a")}, glass: glass{
				err: &accessreview.UnavailableError{Err: errors.New("gone")},
			}, wantPatch: "/metadata/labels/a", wantAsked: asks("a"),
			wantDecision: map[string]Decision{"a": DecisionMutate},
			wantWarnings: []string{"WebhookPolicy 'a' was not skipped: whether you may skip it is not known: asking for authorization: gone"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Observe, host.Authorizer = observeInto(decisions), &tt.glass
			resp := mutate(t, groupFrom(t, tt.specs), podInput(t, admission.Create).review(t), host)
			patch := ""
			if strings.Contains(string(resp.Patch), tt.wantPatch) && tt.wantPatch != "" {
				patch = tt.wantPatch
			} else if len(resp.Patch) > 0 {
				patch = string(resp.Patch)
			}
			got := []any{resp.Allowed, patch, tt.glass.asked, resp.AuditAnnotations["breakglass"], decisions, resp.Warnings}
			warnings := slices.Concat(tt.wantWarnings, skips(tt.wantSkipped))
			want := []any{!tt.wantDenied, tt.wantPatch, tt.wantAsked, tt.wantSkipped, tt.wantDecision, warnings}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("allowed, patch, questions, annotation, decisions, warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSkippedNamesAreBounded(t *testing.T) {
	specs, skippable := map[string]string{}, map[string]bool{}
	for i := range maxSkippedNames + 3 {
		name := fmt.Sprintf("p%02d", i)
		specs[name], skippable[name] = "breakGlass: true\nvalidations: [{expression: 'false', message: refused}]", true
	}
	resp := evaluate(t, groupFrom(t, specs), podInput(t, admission.Create).review(t),
		Environment{Now: time.Now, Namespaces: testNamespaces, Authorizer: &glass{skippable: skippable}})
	if got := resp.AuditAnnotations["breakglass"]; !resp.Allowed || !strings.HasPrefix(got, "p00, p01, ") ||
		!strings.HasSuffix(got, "p63 and 3 more") {
		t.Errorf("allowed: %t, annotation %q", resp.Allowed, got)
	}
}

// TestPodsOfAllowedWorkloads: a workload that passes although its Pods will be denied gets a warning about them.
func TestPodsOfAllowedWorkloads(t *testing.T) {
	const (
		pods    = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [%s]}]}\n"
		refuses = "podTemplates: {}\nvalidations: [{expression: 'false', message: m}]\n"
		fails   = "podTemplates: {}\nvalidations: [{expression: 'object.spec.missing == 1'}]\n"
		on      = "breakGlass: true\n"
		skipped = "WebhookPolicy 'p' skipped: you have the verb breakglass"
		warned  = "Validation failed for WebhookPolicy 'p': spec.template: m"
		refused = "WebhookPolicy 'p' will deny the Pods that controllers create from spec.template: " +
			"correct the template, or exclude the workload from the policy"
		ratcheted = "WebhookPolicy 'p' allowed request, because the stored object fails it too: spec.validations[0] at spec.template: m"
		warns     = "podTemplates: {validationActions: [Warn]}\nvalidations: [{expression: 'false', message: m}]\n"
		denies    = "podTemplates: {validationActions: [Deny]}\nvalidations: [{expression: 'false', message: m}]\n"
	)
	tests := map[string]struct {
		spec         string
		wantDenied   bool
		wantWarnings []string
	}{
		"skipped":                     {spec: on + refuses, wantWarnings: []string{skipped, refused}},
		"skipped, for UPDATE of Pods": {spec: on + fmt.Sprintf(pods, "UPDATE") + refuses, wantWarnings: []string{skipped}},
		"skipped, an error":           {spec: on + fails, wantWarnings: []string{skipped, refused}},
		"skipped, Pods get a warning": {
			spec:         on + denies + "bindings: [{name: b, validationActions: [Audit]}]",
			wantWarnings: []string{skipped},
		},
		"denied":                       {spec: refuses, wantDenied: true},
		"ratcheting":                   {spec: "ratchet: true\n" + refuses, wantWarnings: []string{ratcheted, refused}},
		"ratcheting, in the audit log": {spec: "ratchet: true\n" + refuses + "bindings: [{name: b, validationActions: [Audit]}]"},
		"a warning about the workload": {spec: warns, wantWarnings: []string{warned, refused}},
		"an error with Ignore":         {spec: "failurePolicy: Ignore\n" + fails},
		"a template that passes":       {spec: on + "podTemplates: {}\nvalidations: [{expression: 'true'}]\n"},
		"a warning about the Pods as well": {spec: refuses + "bindings: [{name: b, validationActions: [Warn]}]", wantWarnings: []string{
			"Validation failed for WebhookPolicy 'p' with binding 'b': spec.template: m",
		}},
	}
	deployment := func(template string) string { return workloadYAML("Deployment", "", "{template: "+template+"}") }
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			host.Authorizer = &glass{skippable: map[string]bool{"p": true}}
			request := workloadRequest(t, deploymentsResource, deployment(otherYAML), deployment(templateYAML))
			resp := evaluate(t, templateGroupFrom(t, map[string]string{"p": tt.spec}), request, host)
			if diff := cmp.Diff([]any{!tt.wantDenied, tt.wantWarnings}, []any{resp.Allowed, resp.Warnings}); diff != "" {
				t.Errorf("allowed, warnings (-want +got):\n%s", diff)
			}
		})
	}
}
