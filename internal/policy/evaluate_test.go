package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/response"
)

func hostOf() Environment { return Environment{Now: time.Now, Namespaces: testNamespaces} }

func observeInto(decisions map[string]Decision) func(string, admissionv1.Operation, Decision, time.Duration) {
	return func(policy string, _ admissionv1.Operation, d Decision, _ time.Duration) { decisions[policy] = d }
}

// groupFrom compiles specs by policy name.
func groupFrom(tb testing.TB, specs map[string]string) *Group {
	tb.Helper()
	var compiled []*Compiled
	for name, spec := range specs {
		compiled = append(compiled, mustCompile(tb, sharedCompiler, policyFrom(tb, name, spec)))
	}
	return NewGroup(compiled)
}

func evaluate(tb testing.TB, g *Group, raw *admissionv1.AdmissionRequest, host Environment) *admissionv1.AdmissionResponse {
	tb.Helper()
	resp, err := g.Validate(tb.Context(), raw, host)
	if err != nil {
		tb.Fatal(err)
	}
	return resp
}

type namespacesFunc func(context.Context, string) (*corev1.Namespace, error)

func (f namespacesFunc) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return f(ctx, name)
}

// panicking is a validator with a bug.
type panicking struct{ validating.Validator }

func TestPanicIsAnErrorOfItsPolicyOnly(t *testing.T) {
	const reads = "validations: [{expression: 'namespaceObject != null'}]\n"
	tests := map[string]struct {
		specs     map[string]string
		broken    string // the policy whose validator panics
		want      string // message; empty if allowed
		panicked  string // policies whose evaluation panicked
		decisions map[string]Decision
	}{
		"validator, Fail": {
			specs: map[string]string{
				"a": "validations: [{expression: 'true'}]",
				"b": "validations: [{expression: 'true'}]",
				"c": "validations: [{expression: 'false', message: m}]",
			}, broken: "b",
			want: "WebhookPolicy 'b' denied request: internal error: the evaluation panicked\nWebhookPolicy 'c' denied request: m", panicked: "b",
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionError, "c": DecisionDeny},
		},
		"validator, Ignore": {
			specs: map[string]string{
				"a": "validations: [{expression: 'true'}]",
				"b": "validations: [{expression: 'true'}]\nfailurePolicy: Ignore",
			}, broken: "b",
			panicked: "b", decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionError},
		},
		"lookup of the namespace": {
			specs: map[string]string{
				"a": "validations: [{expression: 'true'}]",
				"b": reads + "failurePolicy: Ignore",
				"c": reads,
				"d": "validations: [{expression: 'false', message: m}]",
			},
			want: "WebhookPolicy 'c' denied request: internal error: the lookup of the namespace panicked\n" +
				"WebhookPolicy 'd' denied request: m", panicked: "b",
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionError, "c": DecisionError, "d": DecisionDeny},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, tc.specs)
			for _, p := range group.policies {
				if p.name == tc.broken {
					p.validator, p.quick = panicking{}, nil
				}
			}
			group = regroup(group)
			decisions, panicked := map[string]Decision{}, ""
			lookups := 0
			host := Environment{
				Now: time.Now, Observe: observeInto(decisions),
				Namespaces: namespacesFunc(func(context.Context, string) (*corev1.Namespace, error) { lookups++; panic("lost") }),
				Panicked: func(p PanicReport) {
					if p.Err == nil || len(p.Stack) == 0 {
						t.Error("a panic without error or stack")
					}
					panicked += p.Policy
				},
			}
			resp := evaluate(t, group, podInput(t, admission.Create).review(t), host)
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
			}
			if message != tc.want || panicked != tc.panicked || lookups > 1 {
				t.Errorf("message = %q, want %q; panicked %q, want %q; %d lookups", message, tc.want, panicked, tc.panicked, lookups)
			}
			if diff := cmp.Diff(tc.decisions, decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// endless would evaluate for minutes if nothing stopped it: it is cut off by
// the deadline, long before its cost.
const endless = `object.spec.many.all(a, object.spec.many.all(b, object.spec.many.all(c, [1].all(d, [1].all(e, a == b || a != b)))))`

func TestDeadlineIsAnErrorByFailurePolicy(t *testing.T) {
	for failurePolicy, want := range map[string]bool{"Fail": false, "Ignore": true} {
		t.Run(failurePolicy, func(t *testing.T) {
			group := groupFrom(t, map[string]string{
				"long":  "validations: [{expression: '" + endless + "'}]\nfailurePolicy: " + failurePolicy,
				"plain": "validations: [{expression: 'true'}]\nfailurePolicy: " + failurePolicy,
			})
			raw := podInput(t, admission.Create).review(t)
			raw.Object.Raw = []byte(`{"spec":{"many":[` + strings.TrimSuffix(strings.Repeat("1,", 400), ",") + `]}}`)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			decisions := map[string]Decision{}
			host := hostOf()
			host.Observe = observeInto(decisions)
			start := time.Now()
			resp, err := group.Validate(ctx, raw, host)
			if err != nil {
				t.Fatal(err)
			}
			if elapsed := time.Since(start); elapsed > 30*time.Second {
				t.Errorf("it took %s", elapsed)
			}
			if resp.Allowed != want || decisions["long"] != DecisionError {
				t.Errorf("allowed = %t, want %t; decisions %v", resp.Allowed, want, decisions)
			}
			if !want && !strings.Contains(resp.Result.Message, "deadline exceeded") {
				t.Errorf("message = %q, want it to say that the time was over", resp.Result.Message)
			}
		})
	}
}

func TestDefaultBindingDenies(t *testing.T) {
	resp := evaluate(t, groupFrom(t, map[string]string{"p": "validations: [{expression: 'false', message: m}]"}),
		podInput(t, admission.Create).review(t), hostOf())
	if resp.Allowed || resp.Result.Message != "WebhookPolicy 'p' denied request: m" {
		t.Errorf("result = %+v", resp.Result)
	}
}

func TestDecisions(t *testing.T) {
	tests := map[string]struct {
		spec string
		want Decision
	}{
		"allow": {spec: "validations: [{expression: 'true'}]", want: DecisionAllow},
		"skip": {
			spec: "validations: [{expression: 'false'}]\nmatchConditions: [{name: a, expression: 'false'}]",
			want: DecisionSkip,
		},
		"annotate": {spec: "auditAnnotations: [{key: k, valueExpression: 'string(1)'}]", want: DecisionAnnotate},
		"annotate and validate": {
			spec: "validations: [{expression: 'true'}]\nauditAnnotations: [{key: k, valueExpression: 'string(1)'}]",
			want: DecisionAnnotate,
		},
		"no value to annotate": {spec: "auditAnnotations: [{key: k, valueExpression: 'null'}]", want: DecisionAllow},
		"annotate, skipped": {
			spec: "auditAnnotations: [{key: k, valueExpression: 'string(1)'}]\nmatchConditions: [{name: a, expression: 'false'}]",
			want: DecisionSkip,
		},
		"no binding matches": {
			spec: "validations: [{expression: 'false'}]\nbindings: [{name: a, validationActions: [Deny], matchResources: " +
				"{resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}}]",
			want: DecisionUnmatched,
		},
		"deny": {
			spec: "validations: [{expression: 'false'}]\nbindings: [{name: a, validationActions: [Audit]}, {name: b, " +
				"validationActions: [Warn]}, {name: c, validationActions: [Deny]}]",
			want: DecisionDeny,
		},
		"warn": {
			spec: "validations: [{expression: 'false'}]\nbindings: [{name: a, validationActions: [Audit]}, {name: b, validationActions: [Warn]}]",
			want: DecisionWarn,
		},
		"audit": {
			spec: "validations: [{expression: 'false'}]\nbindings: [{name: a, validationActions: [Audit]}]",
			want: DecisionAudit,
		},
		"error": {
			spec: "validations: [{expression: 'object.nope == 1'}, {expression: 'false'}]",
			want: DecisionError,
		},
		"error ignored": {
			spec: "validations: [{expression: 'object.nope == 1'}]\nfailurePolicy: Ignore",
			want: DecisionError,
		},
		"error in a condition": {
			spec: "validations: [{expression: 'true'}]\nmatchConditions: [{name: a, expression: 'object.nope == 1'}]",
			want: DecisionError,
		},
		"condition error, ignored": {
			spec: "validations: [{expression: 'true'}]\nmatchConditions: [{name: a, expression: 'object.nope == 1'}]\nfailurePolicy: Ignore",
			want: DecisionError,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Observe = observeInto(decisions)
			evaluate(t, groupFrom(t, map[string]string{"p": tc.spec}), podInput(t, admission.Create).review(t), host)
			if decisions["p"] != tc.want {
				t.Errorf("decision = %q, want %q", decisions["p"], tc.want)
			}
		})
	}
}

func TestUnmatchedMutation(t *testing.T) {
	decisions := map[string]Decision{}
	host := testWorld.host()
	host.Observe = observeInto(decisions)
	g := groupFrom(t, map[string]string{
		"p": "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: " +
			"\"/metadata/labels\"}]'}}]\nbindings: [{name: a, matchResources: {resourceRules: [{apiGroups: [apps], " +
			"apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}}]",
	})
	if _, err := g.Mutate(t.Context(), podInput(t, admission.Create).review(t), host); err != nil || decisions["p"] != DecisionUnmatched {
		t.Errorf("decision = %q, %v, want %q", decisions["p"], err, DecisionUnmatched)
	}
}

func TestHelpFollowsMessages(t *testing.T) {
	p := policyFrom(t, "p", "validations: [{expression: 'false', message: m}]\n"+
		"bindings: [{name: a, validationActions: [Deny]}, {name: b, validationActions: [Warn]}]")
	p.Annotations = map[string]string{v1alpha1.AnnotationHelp: "https://wiki.example.com/p"}
	resp := evaluate(t, NewGroup([]*Compiled{mustCompile(t, sharedCompiler, p)}), podInput(t, admission.Create).review(t), hostOf())
	wantCause := metav1.StatusCause{
		Field:   "object",
		Message: "WebhookPolicy 'p' with binding 'a' denied request: m (see https://wiki.example.com/p)",
	}
	if diff := cmp.Diff([]metav1.StatusCause{wantCause}, resp.Result.Details.Causes); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	wantWarnings := []string{"Validation failed for WebhookPolicy 'p' with binding 'b': m (see https://wiki.example.com/p)"}
	if diff := cmp.Diff(wantWarnings, resp.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestUnknownDecisionDenies: an action that a later release of the validator may return
// denies.
func TestUnknownDecisionDenies(t *testing.T) {
	var a answer
	p := &Compiled{name: "p", bindings: []binding{{subject: "WebhookPolicy 'p'"}}}
	got := a.add(p, []result{{binding: &p.bindings[0], decisions: []validating.PolicyDecision{{Action: "maybe"}}}})
	r := newRequest(&admissionv1.AdmissionRequest{})
	r.whole.versioned = &admission.VersionedAttributes{Attributes: r.match}
	resp := a.validated(r)
	const want = `WebhookPolicy 'p' denied request: internal error: unknown decision "maybe"`
	if got != DecisionError || resp.Allowed || resp.Result.Message != want {
		t.Errorf("decision = %q, response = %+v", got, resp)
	}
}

func TestAllDenialsAreReturnedInStableOrder(t *testing.T) {
	specs := map[string]string{}
	var want []string
	for i := range 9 {
		name := fmt.Sprintf("p%d", i)
		specs[name] = "validations: [{expression: 'false', message: one}, {expression: 'true'}, {expression: 'false', message: two}]"
		want = append(want, "WebhookPolicy '"+name+"' denied request: one", "WebhookPolicy '"+name+"' denied request: two")
	}
	raw := podInput(t, admission.Create).review(t)
	for range 5 { // groupFrom shuffles
		resp := evaluate(t, groupFrom(t, specs), raw, hostOf())
		if diff := cmp.Diff(want, strings.Split(resp.Result.Message, "\n")); diff != "" {
			t.Fatalf("denials (-want +got):\n%s", diff)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	many := func(n int, message, actions string) *Group {
		validations := strings.TrimSuffix(strings.Repeat("{expression: 'false', message: '"+message+"'},", n), ",")
		return groupFrom(t, map[string]string{
			"p": "validations: [" + validations + "]\nbindings: [{name: b, validationActions: [" + actions + "]}]",
		})
	}
	raw := podInput(t, admission.Create).review(t)
	lines := func(r *admissionv1.AdmissionResponse) []string { return strings.Split(r.Result.Message, "\n") }
	t.Run("64 denials", func(t *testing.T) {
		resp := evaluate(t, many(64, "m", "Deny"), raw, hostOf())
		if got := lines(resp); len(got) != 64 || len(resp.Result.Details.Causes) != 64 || strings.Contains(got[63], "left out") {
			t.Errorf("%d lines, %d causes, last %q", len(got), len(resp.Result.Details.Causes), got[len(got)-1])
		}
	})
	t.Run("70 denials", func(t *testing.T) {
		resp := evaluate(t, many(70, "m", "Deny"), raw, hostOf())
		if got := lines(resp); len(got) != 65 || len(resp.Result.Details.Causes) != 64 || got[64] != "(6 more denials were left out)" {
			t.Errorf("%d lines, %d causes, last %q", len(got), len(resp.Result.Details.Causes), got[len(got)-1])
		}
	})
	t.Run("long denials", func(t *testing.T) {
		resp := evaluate(t, many(40, long, "Deny"), raw, hostOf())
		got := lines(resp)
		if shown := len(resp.Result.Details.Causes); shown != 15 || len(got) != 16 ||
			got[15] != "(25 more denials were left out)" || len(resp.Result.Message) > response.MaxMessage+100 {
			t.Errorf("%d lines of %d bytes, %d causes, last %q", len(got), len(resp.Result.Message), shown, got[len(got)-1])
		}
	})
	t.Run("one very long denial", func(t *testing.T) {
		resp := evaluate(t, many(1, strings.Repeat("x", 30000), "Deny"), raw, hostOf())
		if n := len(resp.Result.Message); n > response.MaxOneMessage+100 || n < response.MaxOneMessage ||
			!strings.HasSuffix(resp.Result.Message, "x...") {
			t.Errorf("message of %d bytes", n)
		}
	})
	t.Run("70 warnings", func(t *testing.T) {
		resp := evaluate(t, many(70, "m", "Warn"), raw, hostOf())
		if n := len(resp.Warnings); !resp.Allowed || n != 65 || resp.Warnings[64] != "6 more warnings were left out" {
			t.Errorf("%d warnings, last %q", n, resp.Warnings[n-1])
		}
	})
	t.Run("long warnings", func(t *testing.T) {
		resp := evaluate(t, many(40, strings.Repeat("w", 5000), "Warn"), raw, hostOf())
		size := 0
		for _, w := range resp.Warnings {
			size += len(w)
		}
		if n := len(resp.Warnings); n != 13 || size > response.MaxWarningText+50 || resp.Warnings[12] != "28 more warnings were left out" {
			t.Errorf("%d warnings of %d bytes, last %q", n, size, resp.Warnings[n-1])
		}
	})
	t.Run("long failures", func(t *testing.T) {
		resp := evaluate(t, many(40, strings.Repeat("f", 5000), "Audit"), raw, hostOf())
		var failures []validating.ValidationFailureValue
		if err := json.Unmarshal([]byte(resp.AuditAnnotations[response.FailureKey]), &failures); err != nil {
			t.Fatal(err)
		}
		if n := len(resp.AuditAnnotations[response.FailureKey]); len(failures) != 12 || n > response.MaxAnnotations ||
			resp.AuditAnnotations[response.LeftOutKey] != "28 validation failures and 0 values of audit annotations" {
			t.Errorf("%d failures of %d bytes, left out %q", len(failures), n, resp.AuditAnnotations[response.LeftOutKey])
		}
	})
	t.Run("long audit annotations", func(t *testing.T) {
		var specs []string
		for i := range 9 {
			specs = append(specs, fmt.Sprintf(`{key: k%d, valueExpression: '"%d%s"'}`, i, i, strings.Repeat("a", 9000)))
		}
		resp := evaluate(t, groupFrom(t, map[string]string{
			"p": annotated(specs...) + "validations: [{expression: 'false', message: m}]\n" +
				bound("{name: b, validationActions: [Audit]}"),
		}), raw, hostOf())
		size := 0
		for key, value := range resp.AuditAnnotations {
			size += len(key) + len(value)
		}
		if len(resp.AuditAnnotations) != 7 || size > response.MaxAnnotations || resp.AuditAnnotations["p.k0"][:2] != "0a" ||
			resp.AuditAnnotations[response.LeftOutKey] != "0 validation failures and 4 values of audit annotations" {
			t.Errorf("%d annotations of %d bytes, left out %q", len(resp.AuditAnnotations), size, resp.AuditAnnotations[response.LeftOutKey])
		}
		if resp.AuditAnnotations[response.FailureKey] == "" {
			t.Error("audit annotations left no room for the failures")
		}
	})
	t.Run("70 failures", func(t *testing.T) {
		resp := evaluate(t, many(70, "m", "Audit"), raw, hostOf())
		var failures []validating.ValidationFailureValue
		if err := json.Unmarshal([]byte(resp.AuditAnnotations[response.FailureKey]), &failures); err != nil {
			t.Fatal(err)
		}
		if !resp.Allowed || len(failures) != 50 || failures[49].ExpressionIndex != 49 ||
			resp.AuditAnnotations[response.LeftOutKey] != "20 validation failures and 0 values of audit annotations" {
			t.Errorf("%d failures", len(failures))
		}
	})
}

func TestRequestsThatMatchNothingAreNotDecoded(t *testing.T) {
	group := groupFrom(t, map[string]string{
		"p": "validations: [{expression: 'false'}]\nmatchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], " +
			"resources: [nodes], operations: ['*']}]}",
	})
	raw := podInput(t, admission.Update).review(t)
	raw.Object.Raw, raw.OldObject.Raw, raw.Options.Raw = []byte("{garbage"), []byte("{garbage"), []byte("{garbage")
	resp, err := group.Validate(t.Context(), raw, Environment{})
	if err != nil || !resp.Allowed || resp.UID != raw.UID {
		t.Errorf("Evaluate() = %+v, %v", resp, err)
	}
}

func TestUnreadableParts(t *testing.T) {
	tests := map[string]struct {
		expression string
		spoil      func(*admissionv1.AdmissionRequest, []byte)
		raw        string
		want       string // part of the denial; empty if there is none
	}{
		"object": {
			expression: "true",
			spoil:      spoilObject,
			raw:        `{"a":`,
			want: `unreadable object at request.object: invalid JSON: unexpected end at "/a" (offset 5): remove the ` +
				`value, make the object smaller, or delete it and create it again`,
		},
		"object is a list": {
			expression: "true",
			spoil:      spoilObject,
			raw:        `[]`,
			want:       "at request.object: invalid JSON: must be a JSON object",
		},
		"too large a number": {
			expression: "object.a != 1",
			spoil:      spoilObject,
			raw:        `{"a":1e400}`,
			want:       "at request.object: invalid JSON: number does not fit",
		},
		"in a part not read": {expression: "object.b == 1", spoil: spoilObject, raw: `{"a":1e400,"b":1}`},
		"duplicate member":   {expression: "object.a == 2", spoil: spoilObject, raw: `{"a":1,"a":2}`},
		"oldObject": {
			expression: "oldObject == null",
			spoil:      spoilOld,
			raw:        `{"a":`,
			want:       "unreadable object at request.oldObject: ",
		},
		"oldObject not read": {expression: "true", spoil: spoilOld, raw: `{"a":`},
		"options": {
			expression: "request.options == null",
			spoil:      spoilOptions,
			raw:        `{"a":`,
			want:       "unreadable object at request.options: ",
		},
		"options not read":      {expression: "true", spoil: spoilOptions, raw: `{"a":`},
		"object is null":        {expression: "object == null", spoil: spoilObject, raw: `null`},
		"object is absent":      {expression: "object == null", spoil: spoilObject},
		"object is almost null": {expression: "true", spoil: spoilObject, raw: `nul`, want: "at request.object: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, map[string]string{"p": "validations: [{expression: '" + tc.expression + "'}]\nfailurePolicy: Ignore"})
			raw := podInput(t, admission.Update).review(t)
			tc.spoil(raw, []byte(tc.raw))
			resp, err := group.Validate(t.Context(), raw, hostOf())
			if err != nil || resp.Allowed != (tc.want == "") || (tc.want != "" && !strings.Contains(resp.Result.Message, tc.want)) {
				t.Errorf("Evaluate() = %+v, %v, want a denial that says %q", resp, err, tc.want)
			}
		})
	}
}

func spoilObject(r *admissionv1.AdmissionRequest, raw []byte) {
	r.Object = runtime.RawExtension{Raw: raw}
}
func spoilOld(r *admissionv1.AdmissionRequest, raw []byte) {
	r.OldObject = runtime.RawExtension{Raw: raw}
}
func spoilOptions(r *admissionv1.AdmissionRequest, raw []byte) {
	r.Options = runtime.RawExtension{Raw: raw}
}

// TestGroupsAreReadConcurrently: many callers evaluate while groups are replaced;
// each sees one whole group.
func TestGroupsAreReadConcurrently(t *testing.T) {
	var compiled [2][]*Compiled
	for i := range compiled {
		for j := range 4 {
			spec := fmt.Sprintf("{variables: [{name: a, expression: 'object.metadata.name'}], validations: [{expression: "+
				"'variables.a == namespaceObject.metadata.name', message: v%d}]}", i)
			compiled[i] = append(compiled[i], mustCompile(t, sharedCompiler, policyFrom(t, fmt.Sprintf("p%d", 3-j), spec)))
		}
	}
	var current atomic.Pointer[Group]
	current.Store(NewGroup(compiled[0]))
	stop := make(chan struct{})
	var swapper, callers sync.WaitGroup
	swapper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				current.Store(NewGroup(compiled[i%2]))
			}
		}
	})
	raw := podInput(t, admission.Create).review(t)
	before := raw.DeepCopy()
	for range 16 {
		callers.Go(func() {
			for range 50 {
				resp, err := current.Load().Validate(t.Context(), raw, hostOf())
				if err != nil {
					t.Error(err)
					return
				}
				if v0, v1 := strings.Count(resp.Result.Message, ": v0"), strings.Count(resp.Result.Message, ": v1"); v0+v1 != 4 || v0*v1 != 0 {
					t.Errorf("message = %q, a mix of two groups", resp.Result.Message)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	swapper.Wait()
	if diff := cmp.Diff(before, raw); diff != "" {
		t.Errorf("the request was changed:\n%s", diff)
	}
	if compiled[0][0].name != "p3" {
		t.Error("the argument of NewGroup was sorted")
	}
}
