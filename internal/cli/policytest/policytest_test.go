package policytest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/clitest"
)

func run(t testing.TB, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return clitest.Run(t, NewCommand, stdin, args...)
}

const (
	rules = "apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicy\nmetadata: {name: %s}\nspec:\n  matchConstraints:\n    resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [\"*\"]}]\n%s\n---\n"
	head  = "apiVersion: test.ostiary.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: t}\npolicies: [%s]\ncases:\n"
	pod   = "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
)

// the policies of the cases below.
func policies() string {
	p := func(name, spec string) string { return fmt.Sprintf(rules, name, spec) }
	return p("deny", "  validations:\n  - {expression: '1 == 2', message: the first, reason: Forbidden}\n  - {expression: '1 == 2', message: the second}") +
		p("allow", "  validations: [{expression: '1 == 1'}]") +
		p("warn", "  validations: [{expression: 'false', message: careful}]\n  bindings: [{name: b, validationActions: [Warn]}]") +
		p("audit", "  validations: [{expression: 'false', message: noted}]\n  bindings: [{name: b, validationActions: [Audit]}]") +
		p("mutate", "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}]") +
		p("annotate", "  auditAnnotations: [{key: name, valueExpression: string(object.metadata.name)}]") +
		p("broken", "  validations: [{expression: 'object.spec.x == 1', message: broken}]") +
		p("broken-ignored", "  failurePolicy: Ignore\n  validations: [{expression: 'object.spec.x == 1', message: broken}]") +
		p("broken-condition", "  failurePolicy: Ignore\n  matchConditions: [{name: c, expression: 'object.spec.x == 1'}]\n  validations: [{expression: 'false'}]") +
		p("broken-mutation", "  failurePolicy: Ignore\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/x\"}]'}}]") +
		p("broken-annotation", "  failurePolicy: Fail\n  auditAnnotations: [{key: x, valueExpression: string(object.spec.x)}]") +
		p("asks", "  failurePolicy: Ignore\n  validations: [{expression: '!authorizer.group(\"g\").resource(\"r\").check(\"v\").allowed()'}]") +
		strings.Replace(p("selector", "  validations: [{expression: 'false'}]"), "matchConstraints:\n", "matchConstraints:\n    objectSelector: {matchLabels: {a: b}}\n", 1) +
		p("backend", "  backend: {type: Validating, url: 'https://hooks.example.com/', admissionReviewVersions: [v1], sideEffects: None}")
}

// TestExpectations has, for each kind of expectation, a case that passes and one that fails.
func TestExpectations(t *testing.T) {
	const want = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default, labels: {a: %s}}}"
	tests := map[string]struct {
		policies, expect, more string
		want                   string // of the problem; empty if the case passes
	}{
		"deny":                         {policies: "deny", expect: "decision: Deny"},
		"deny, allowed":                {policies: "allow", expect: "decision: Deny", want: "stdin:%d:54: expect.decision: got Allow, want Deny"},
		"allow":                        {policies: "allow", expect: "decision: Allow"},
		"allow, denied":                {policies: "deny", expect: "decision: Allow", want: "expect.decision: got Deny, want Allow: WebhookPolicy 'deny' denied request: the first; WebhookPolicy 'deny' denied request: the second"},
		"allow, with a warning":        {policies: "warn", expect: "decision: Allow", want: "expect.decision: got Warn, want Allow: Validation failed for WebhookPolicy 'warn' with binding 'b': careful"},
		"allow, audited":               {policies: "audit", expect: "decision: Allow", want: "expect.decision: got Audit, want Allow: noted"},
		"allow, changed":               {policies: "mutate", expect: "decision: Allow", want: "expect.decision: got Mutate, want Allow"},
		"warn":                         {policies: "warn", expect: "decision: Warn, message: careful"},
		"warn, allowed":                {policies: "allow", expect: "decision: Warn", want: "expect.decision: got Allow, want Warn"},
		"audit":                        {policies: "audit", expect: "decision: Audit, message: noted"},
		"audit, a warning":             {policies: "warn", expect: "decision: Audit", want: "expect.decision: got Warn, want Audit: Validation failed for WebhookPolicy 'warn' with binding 'b': careful"},
		"mutate":                       {policies: "mutate", expect: "decision: Mutate"},
		"mutate, unchanged":            {policies: "allow", expect: "decision: Mutate", want: "expect.decision: got Allow, want Mutate"},
		"mutate and warn":              {policies: "mutate, warn", expect: "decision: Mutate, warnings: [careful]"},
		"message":                      {policies: "deny", expect: "decision: Deny, message: the second"},
		"message, another":             {policies: "deny", expect: "decision: Deny, message: second", want: `expect.message: got ["WebhookPolicy 'deny' denied request: the first" "WebhookPolicy 'deny' denied request: the second"], want "second"`},
		"reason":                       {policies: "deny", expect: "decision: Deny, reason: Forbidden"},
		"reason, another":              {policies: "deny", expect: "decision: Deny, reason: Invalid", want: `expect.reason: got "Forbidden", want "Invalid"`},
		"code":                         {policies: "deny", expect: "decision: Deny, code: 403"},
		"code, another":                {policies: "deny", expect: "decision: Deny, code: 422", want: "expect.code: got 403, want 422"},
		"causes":                       {policies: "deny", expect: "decision: Deny, causes: [the first, the second]"},
		"causes, one is missing":       {policies: "deny", expect: "decision: Deny, causes: [the first]", want: `expect.causes: got ["WebhookPolicy 'deny' denied request: the first" "WebhookPolicy 'deny' denied request: the second"], want ["the first"]`},
		"warnings":                     {policies: "warn", expect: "decision: Warn, warnings: [careful]"},
		"warnings, none":               {policies: "warn", expect: "decision: Warn, warnings: []", want: `expect.warnings: got ["Validation failed for WebhookPolicy 'warn' with binding 'b': careful"], want []`},
		"annotations":                  {policies: "annotate", expect: "decision: Allow, auditAnnotations: {annotate.name: a}"},
		"annotations, another":         {policies: "annotate", expect: "decision: Allow, auditAnnotations: {annotate.name: b}", want: `expect.auditAnnotations: annotate.name is "a", want "b"`},
		"annotations, none":            {policies: "annotate", expect: "decision: Allow, auditAnnotations: {}", want: `expect.auditAnnotations: annotate.name is "a", want none`},
		"annotations, absent":          {policies: "allow", expect: "decision: Allow, auditAnnotations: {x: z}", want: `expect.auditAnnotations: x is absent, want "z"`},
		"object":                       {policies: "mutate", expect: "decision: Mutate, object: " + fmt.Sprintf(want, "b")},
		"object, another":              {policies: "mutate", expect: "decision: Mutate, object: " + fmt.Sprintf(want, "c"), want: "expect.object: the object differs (-want +got):\n--- want\n+++ want (mutated)\n@@ -3,5 +3,5 @@\n metadata:\n   labels:\n-    a: c\n+    a: b\n   name: a\n   namespace: default\n"},
		"objectFile, absent":           {policies: "mutate", expect: "decision: Mutate, objectFile: none.yaml", want: "expect.objectFile: none.yaml does not exist: run with --update to write it"},
		"a backend that denies":        {policies: "backend", more: "backends: [{policy: backend, allowed: false, message: not you}]", expect: "decision: Deny, message: not you"},
		"a backend without answer":     {policies: "backend", expect: "decision: Deny", want: "expect: the policy backend failed with an error, which only the decision Error allows: the backend is called, and no answer is given for it"},
		"an authorizer":                {policies: "asks", more: "authorizer: [{verb: v, decision: Allow}]", expect: "decision: Deny"},
		"an authorizer without answer": {policies: "asks", expect: "decision: Allow", want: `expect: the policy asks failed with an error, which only the decision Error allows: asking for authorization: no answer is given for the check {user: "developer", verb: "v", group: "g", resource: "r"}`},
		"an error":                     {policies: "broken-ignored", expect: "decision: Error, message: no such key"},
		"an error with another text":   {policies: "broken", expect: "decision: Error, message: nothing", want: `expect.message: the error does not contain "nothing": the policy broken failed with an error`},
		"no error":                     {policies: "deny", expect: "decision: Error", want: "expect.decision: got Deny, want Error: WebhookPolicy 'deny' denied request: the first"},
		"excluded by a selector":       {policies: "selector", expect: "decision: Deny", want: "expect.decision: got Allow, want Deny\nbecause selector is not evaluated: spec.matchConstraints.objectSelector \"a=b\" does not select the labels of the object"},
		"an error as a denial":         {policies: "broken", expect: "decision: Deny", want: "expect: the policy broken failed with an error, which only the decision Error allows: expression 'object.spec.x == 1' resulted in error: no such key: spec"},
		"an error that is ignored":     {policies: "broken-ignored", expect: "decision: Allow", want: "expect: the policy broken-ignored failed with an error, which only the decision Error allows: expression 'object.spec.x == 1' resulted in error: no such key: spec"},
		"an error of a condition":      {policies: "broken-condition", expect: "decision: Allow", want: "expect: the policy broken-condition failed with an error, which only the decision Error allows: expression 'object.spec.x == 1' resulted in error: no such key: spec"},
		"an error of a mutation":       {policies: "broken-mutation", expect: "decision: Allow", want: "expect: the policy broken-mutation failed with an error, which only the decision Error allows: spec.mutations[0]: "},
		"an error of an annotation":    {policies: "broken-annotation", expect: "decision: Deny", want: "expect: the policy broken-annotation failed with an error, which only the decision Error allows: expression 'string(object.spec.x)' resulted in error: no such key: spec"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			text := policies() + fmt.Sprintf(head, tt.policies) + "- name: c\n  object: " + pod + "\n  expect: {" + tt.expect + "}\n  " + tt.more + "\n"
			out, _, err := run(t, text, "-")
			if tt.want == "" {
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			want, _ := strings.CutPrefix(tt.want, "stdin:%d:54: ")
			want = strings.ReplaceAll(strings.TrimSpace(want), "\n", "\n    ")
			if output.Status(err) != output.StatusFindings || !strings.Contains(out, want) || !strings.HasPrefix(out, "FAIL t/c\n  stdin:") {
				t.Errorf("got  %v\n%s\nwant %s", err, out, want)
			}
		})
	}
}

// TestRatchetInTwoSteps: as in a cluster, an update that makes a policy apply to an object
// does not pass because the stored object fails the validation too.
func TestRatchetInTwoSteps(t *testing.T) {
	const object = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {tier: %s}}}"
	const of = "  ratchet: true\n  validations: [{name: v, expression: 'object == null', message: bad}]\n"
	p := func(name, spec string) string { return fmt.Sprintf(rules, name, of+spec) }
	text := p("condition", "  matchConditions: [{name: prod, expression: 'object.metadata.labels.tier == \"prod\"'}]") +
		p("binding", "  bindings: [{name: b, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {tier: prod}}}}]") +
		strings.Replace(p("selector", ""), "matchConstraints:\n", "matchConstraints:\n    objectSelector: {matchLabels: {tier: prod}}\n", 1)
	for _, policy := range []string{"condition", "binding", "selector"} {
		t.Run(policy, func(t *testing.T) {
			cases := fmt.Sprintf(head, policy)
			for from, expect := range map[string]string{"test": "{decision: Deny, validations: [v]}", "prod": "{decision: Warn, validations: [v]}"} {
				cases += fmt.Sprintf("- {name: from %s, oldObject: "+object+", object: "+object+", expect: %s}\n", from, from, "prod", expect)
			}
			if out, _, err := run(t, text+cases, "-"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestInvalidTests(t *testing.T) {
	const decisions = "cases[0].expect.decision: want Allow, Deny, Warn, Audit, Mutate, Excepted or Error, got "
	test := func(text string) string { return policies() + fmt.Sprintf(head, "allow") + text }
	valid := "- {name: c, object: " + pod + ", expect: {decision: Allow}}\n"
	line := strings.Count(policies(), "\n")
	tests := map[string]struct {
		text string
		want string // the line is counted from the test
	}{
		"an unknown field":       {test("- {name: c, objekt: {}, expect: {decision: Allow}}"), "6:13: cases[0].objekt: PolicyTest has no such field: correct or remove it"},
		"an unknown policy":      {policies() + fmt.Sprintf(head, "alow") + valid, `4:12: policies[0]: no file has the policy "alow", did you mean "allow"?`},
		"no policy":              {policies() + fmt.Sprintf(head, "") + valid, "4:1: policies: name the policies to test"},
		"no cases":               {policies() + strings.TrimSuffix(fmt.Sprintf(head, "allow"), "cases:\n"), "1:1: cases: the test has no cases: add one"},
		"no name":                {test("- {object: " + pod + ", expect: {decision: Allow}}"), "6:3: cases[0].name: the case has no name: add it"},
		"the same name":          {test(valid + valid), `7:4: cases[1].name: another case has the name "c": rename one of them`},
		"no object":              {test("- {name: c, expect: {decision: Allow}}"), "6:3: cases[0]: the case has neither object nor oldObject: add one"},
		"an object without kind": {test("- {name: c, object: {apiVersion: v1}, expect: {decision: Allow}}"), "6:13: the document has no kind: add apiVersion and kind"},
		"an unknown decision":    {test("- {name: c, object: " + pod + ", expect: {decision: Denied}}"), "6:80: " + decisions + `"Denied"`},
		"no expectation":         {test("- {name: c, object: " + pod + "}"), "6:3: " + decisions + `""`},
		"a reason of an allow":   {test("- {name: c, object: " + pod + ", expect: {decision: Allow, reason: x}}"), "6:97: cases[0].expect.reason: only a Deny has a reason"},
		"a message of an allow":  {test("- {name: c, object: " + pod + ", expect: {decision: Allow, message: x}}"), "6:97: cases[0].expect.message: only Deny, Warn, Audit and Error have a message"},
		"an object of a denial":  {test("- {name: c, object: " + pod + ", expect: {decision: Deny, object: {}}}"), "6:96: cases[0].expect.object: a Deny has no resulting object"},
		"an unknown version":     {test("- {name: c, kubernetesVersion: '1.2', object: " + pod + ", expect: {decision: Allow}}"), "6:13: cases[0].kubernetesVersion: must be a version from 1.34 to 1.37"},
		"an unknown answer":      {test("- {name: c, authorizer: [{decision: Yes}], object: " + pod + ", expect: {decision: Allow}}"), "6:27: cases[0].authorizer[0].decision: got a bool, want a string"},
		"an unknown backend":     {test("- {name: c, backends: [{policy: allow, allowed: true}], object: " + pod + ", expect: {decision: Allow}}"), `6:25: cases[0].backends[0].policy: the test has no policy "allow" with a backend`},
		"too many requests":      {test("- {name: c, repeat: 10001, object: " + pod + ", expect: {decision: Allow}}"), "6:13: cases[0].repeat: want 0 to 10000, got 10001"},
		"an unknown stored kind": {
			test("- {name: c, object: " + pod + ", objects: [{apiVersion: v1, kind: Secrets}], expect: {decision: Allow}}"),
			"6:98: kind: the kind Secrets in v1 is not known, did you mean kind: Secret?",
		},
		"a missing file": {
			"apiVersion: test.ostiary.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: t}\nfiles: [none.yaml]\npolicies: [x]\n" +
				"cases: [{name: c}]",
			"4:1: files: reading the files of the test\nnone.yaml: no such file or directory",
		},
		"another version": {
			"apiVersion: test.ostiary.dev/v1\nkind: PolicyTest\n",
			"2:1: kind: test.ostiary.dev has no kind PolicyTest in test.ostiary.dev/v1: write kind: PolicyTest and " +
				"apiVersion: test.ostiary.dev/v1alpha1",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_, _, err := run(t, tt.text, "-")
			var at, column int
			want, before := tt.want, 0
			if strings.Contains(tt.text, "WebhookPolicy") {
				before = line
			}
			if _, scanErr := fmt.Sscanf(want, "%d:%d:", &at, &column); scanErr != nil {
				t.Fatal(scanErr)
			}
			_, rest, _ := strings.Cut(want, ":")
			want = fmt.Sprintf("stdin:%d:%s", at+before, rest)
			if output.Status(err) != output.StatusError || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	text := policies() + fmt.Sprintf(head, "deny") +
		"- {name: passes, object: " + pod + ", expect: {decision: Deny}}\n" +
		"- {name: 'fails: a, b', object: " + pod + ", expect: {decision: Allow}}\n"
	for _, format := range []string{"table", "json", "yaml", "junit", "github"} {
		t.Run(format, func(t *testing.T) {
			out, errOut, err := run(t, text, "-", "-v", "--coverage", "-o", format)
			if output.Status(err) != output.StatusFindings {
				t.Error(err)
			}
			clitest.Compare(t, filepath.Join("testdata", "golden", format+".txt"), fmt.Sprintf("%s--- stderr ---\n%s%v\n", out, errOut, err))
		})
	}
}

func TestFlags(t *testing.T) {
	text := policies() + fmt.Sprintf(head, "deny, allow") +
		"- {name: a, object: " + pod + ", expect: {decision: Allow}}\n" +
		"- {name: b, object: " + pod + ", expect: {decision: Deny}}\n"
	tests := map[string]struct {
		args       []string
		wantStatus int
		want       string // in the error
	}{
		"a case by name":           {args: []string{"--run", "^t/b$"}, wantStatus: output.StatusOK},
		"a case that fails":        {args: []string{"--run", "t/a"}, wantStatus: output.StatusFindings, want: "0 cases passed, 1 failed"},
		"too little coverage":      {args: []string{"--run", "t/b", "--coverage-min", "60"}, wantStatus: output.StatusFindings, want: "the coverage is 50.0%, and --coverage-min is 60.0%"},
		"enough coverage":          {args: []string{"--run", "t/b", "--coverage-min", "50"}, wantStatus: output.StatusOK},
		"undetected changes":       {args: []string{"--run", "t/b", "--mutate"}, wantStatus: output.StatusFindings},
		"an invalid expression":    {args: []string{"--run", "("}, wantStatus: output.StatusError, want: "invalid argument \"(\" for --run: error parsing regexp: missing closing ): `(`"},
		"no case":                  {args: []string{"--run", "x"}, wantStatus: output.StatusError, want: `no case matches --run "x"`},
		"an impossible percentage": {args: []string{"--coverage-min", "101"}, wantStatus: output.StatusError, want: "invalid argument 101 for --coverage-min: want 0 to 100"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := run(t, text, append([]string{"-"}, tt.args...)...)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if output.Status(err) != tt.wantStatus || tt.want != "" && got != tt.want {
				t.Errorf("status %d, %q; want %d, %q", output.Status(err), got, tt.wantStatus, tt.want)
			}
		})
	}
}

// TestCoverageOfConstants expects that a constant has one result, and that the match
// condition of a backend has two.
func TestCoverageOfConstants(t *testing.T) {
	constant := fmt.Sprintf(rules, "p", "  validations: [{expression: 'false'}]")
	if out, _, err := run(t, constant+fmt.Sprintf(head, "p")+"- {name: a, object: "+pod+", expect: {decision: Deny}}\n", "-", "--coverage-min", "100"); err != nil {
		t.Errorf("a constant: %v\n%s", err, out)
	}
	backend := fmt.Sprintf(rules, "p", "  matchConditions: [{name: c, expression: 'request.userInfo.username != \"nobody\"'}]\n  backend: {type: Validating, url: 'https://example.com/a', caBundle: Zm9v, sideEffects: None, admissionReviewVersions: [v1]}")
	answered := func(allowed string) string {
		return ", object: " + pod + ", backends: [{policy: p, allowed: " + allowed + ", message: x}]"
	}
	some := backend + fmt.Sprintf(head, "p") + "- {name: a" + answered("false") + ", expect: {decision: Deny}}\n- {name: b" + answered("true") + ", expect: {decision: Allow}}\n"
	if out, _, err := run(t, some, "-", "--coverage-min", "100"); output.Status(err) != output.StatusFindings || !strings.Contains(out, "coverage: 75.0%") {
		t.Errorf("without a request that the condition excludes: %v\n%s", err, out)
	}
	if out, _, err := run(t, some+"- {name: c, user: nobody, object: "+pod+", expect: {decision: Allow}}\n", "-", "--coverage-min", "100"); err != nil {
		t.Errorf("with one: %v\n%s", err, out)
	}
}

// TestLookups expects that a case states the stored objects of lookups, and that both results of a
// lookup are part of the coverage.
func TestLookups(t *testing.T) {
	p := fmt.Sprintf(rules, "p", "  lookups: [{name: l, resource: {version: v1, resource: secrets}, storedKeys: '[stored.metadata.name]', "+
		"requestKeys: '[\"key\"]'}]\n  validations: [{expression: 'lookups.l.size() == 0'}]")
	const stored = "[{apiVersion: v1, kind: Secret, metadata: {name: key}}]"
	found := p + fmt.Sprintf(head, "p") + "- {name: a, object: " + pod + ", objects: " + stored + ", expect: {decision: Deny}}\n"
	out, _, err := run(t, found, "-", "--coverage-min", "100")
	if output.Status(err) != output.StatusFindings || !strings.Contains(out, "no objects found") || !strings.Contains(out, "coverage: 50.0%") {
		t.Errorf("without a case that finds nothing: %v\n%s", err, out)
	}
	both := found + "- {name: b, object: " + pod + ", expect: {decision: Allow}}\n"
	if out, _, err := run(t, both, "-", "--coverage-min", "100"); err != nil {
		t.Errorf("with one: %v\n%s", err, out)
	}
	if out, _, err := run(t, both, "-", "--mutate"); err != nil || !strings.Contains(out, "4 of 4 changes are detected") {
		t.Errorf("with changes: %v\n%s", err, out)
	}
}

func TestFailFast(t *testing.T) {
	text := policies() + fmt.Sprintf(head, "deny")
	for i := range 50 {
		text += fmt.Sprintf("- {name: c%d, object: %s, expect: {decision: Allow}}\n", i, pod)
	}
	out, _, err := run(t, text, "-", "--fail-fast")
	if output.Status(err) != output.StatusFindings || !strings.Contains(out, "cases were not run") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMutate expects that a case on each side of a condition detects its changes.
func TestMutate(t *testing.T) {
	p := fmt.Sprintf(rules, "p", "  validations: [{expression: 'object.metadata.name != \"a\" && object.metadata.name != \"b\"'}]")
	object := func(name string) string { return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}}" }
	some := p + fmt.Sprintf(head, "p") + "- {name: a, object: " + object("a") + ", expect: {decision: Deny}}\n- {name: x, object: " + object("x") + ", expect: {decision: Allow}}\n"
	out, _, err := run(t, some, "-", "--mutate")
	if output.Status(err) != output.StatusFindings || !strings.Contains(out, `object.metadata.name != "a"`) || !strings.Contains(out, "4 of 5 changes are detected") {
		t.Errorf("%v\n%s", err, out)
	}
	all := some + "- {name: b, object: " + object("b") + ", expect: {decision: Deny}}\n"
	if out, _, err := run(t, all, "-", "--mutate"); err != nil || !strings.Contains(out, "5 of 5 changes are detected") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUpdate(t *testing.T) {
	t.Chdir(t.TempDir())
	text := policies() + fmt.Sprintf(head, "mutate") + "- {name: c, object: " + pod + ", expect: {decision: Mutate, objectFile: golden/a.yaml}}\n"
	if err := os.WriteFile("test.yaml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "", "test.yaml"); output.Status(err) != output.StatusFindings {
		t.Errorf("without the file: %v", err)
	}
	if _, _, err := run(t, "", "test.yaml", "--update"); err != nil {
		t.Error(err)
	}
	if out, _, err := run(t, "", "."); err != nil {
		t.Errorf("after the update: %v\n%s", err, out)
	}
	if err := os.WriteFile("golden/a.yaml", []byte(pod), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "", "test.yaml"); output.Status(err) != output.StatusFindings {
		t.Errorf("with another file: %v", err)
	}
}

// TestSamples runs the PolicyTests of the samples, of which each has one with full coverage.
func TestSamples(t *testing.T) {
	const samples = "../../../config/samples"
	if out, _, err := run(t, "", samples+"/tests", "--root", samples, "--coverage-min", "100", "--mutate"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	all, err := filepath.Glob(samples + "/[0-9]*.yaml")
	if err != nil || len(all) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, path := range all {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if _, err := os.Stat(filepath.Join(samples, "tests", name+"-test.yaml")); err != nil {
			t.Errorf("%s has no PolicyTest", name)
		}
	}
}

// FuzzTests checks that every input gives tests or an error.
func FuzzTests(f *testing.F) {
	f.Add(policies() + fmt.Sprintf(head, "allow") + "- {name: c, object: " + pod + ", expect: {decision: Allow}}\n")
	f.Add(policies() + fmt.Sprintf(head, "mutate") + "- {name: c, oldObject: " + pod + ", operation: UPDATE, repeat: 3, authorizer: [{decision: Allow}], expect: {decision: Deny, causes: []}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		suites, err := Load(t.Context(), []string{"-"}, LoadOptions{Stdin: strings.NewReader(text)})
		if err != nil && err.Error() == "" || err == nil && len(suites) == 0 {
			t.Errorf("got %d tests and the error %v", len(suites), err)
		}
	})
}
