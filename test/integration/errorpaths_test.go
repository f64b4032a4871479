package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// errorPathTests is the table of what can keep a policy from an answer, with
// the tests that show that failurePolicy and then validationActions decide.
// None of it is ever taken for a request that does not match.
var errorPathTests = map[string][]string{
	"an expression exceeds its cost": {
		"test/integration TestErrorPaths/cost", "test/integration TestErrorPaths/mutation-cost",
		"internal/policy TestBatchStaysWithinLimits",
	},
	"an expression fails": {"test/integration TestErrorPaths/runtime"},
	"a variable fails":    {"test/integration TestErrorPaths/variable"},
	"a match condition fails": {
		"test/integration TestErrorPaths/condition", "test/integration TestErrorPaths/mutation-condition",
	},
	"no params, parameterNotFoundAction Deny":  {"test/integration TestErrorPaths/params-deny"},
	"no params, parameterNotFoundAction Allow": {"test/integration TestErrorPaths/params-allow"},
	"the kind of the params is unknown": {
		"test/integration TestErrorPaths/params-kind", "test/integration TestKindOfParamsThatIsMissing",
	},
	"params are still being listed": {
		"test/integration TestErrorPaths/params-unsynced", "controllers/params TestKindThatDoesNotAnswer",
	},
	"a namespace has more params than fit into memory": {
		"controllers/params TestNamespaceOverItsShare", "controllers/params TestManyNamespacesShareTheBudget",
	},
	"Ostiary may not read the params": {
		"test/integration TestErrorPaths/params-forbidden", "test/integration TestParamsFromPermissionToEffect",
	},
	"the API server does not answer for authorizer": {
		"test/integration TestErrorPaths/authorizer-gone", "test/integration TestErrorPaths/authorizer-silent",
		"test/integration TestErrorPaths/mutation-authorizer",
	},
	"Ostiary may not ask for authorizer":                {"test/integration TestErrorPaths/authorizer-forbidden"},
	"the schema of what is mutated is not known":        {"test/integration TestSchemaThatIsNotPublished"},
	"a mutation fails":                                  {"test/integration TestErrorPaths/mutation"},
	"a mutation makes what has no place in the Go type": {"test/integration TestPolicyRefusedByItsRun"},
	"an expression does not compile":                    {"test/integration TestEnforcedPolicyThatIsBroken"},
	"the evaluation panics": {
		"internal/policy TestPanicIsAnErrorOfItsPolicyOnly", "internal/policy TestPanickingMutationLeavesTheObject",
	},
	"the time for the request is over": {
		"internal/policy TestDeadlineIsAnErrorByFailurePolicy", "internal/policy TestNothingIsEvaluatedOnceTheTimeIsOver",
		"test/integration TestErrorPaths/deadline",
	},
	"Ostiary does not answer": {
		"test/integration TestManagerKilled", "test/integration TestBothPhasesFailClosed",
	},
	"the namespace cannot be read":               {"internal/policy TestMissingNamespaceDiffers"},
	"the call group is not known to the replica": {"test/integration TestBadReviews"},
	"the request cannot be decoded": {
		"internal/policy TestUnreadableParts", "test/integration TestBadReviews",
	},
}

// TestEveryErrorPathHasItsTest keeps the table from naming what is not there.
func TestEveryErrorPathHasItsTest(t *testing.T) {
	for path, tests := range errorPathTests {
		for _, test := range tests {
			folder, name, _ := strings.Cut(test, " ")
			name, row, _ := strings.Cut(name, "/")
			if !defines(t, filepath.Join("../..", folder), "func "+name+"(t *testing.T)") {
				t.Errorf("%s: there is no test %s in %s", path, name, folder)
			}
			if row != "" && !slices.ContainsFunc(errorPaths(), func(p errorPath) bool { return p.name == row }) {
				t.Errorf("%s: %s has no row %s", path, name, row)
			}
		}
	}
	for _, p := range errorPaths() {
		row := "test/integration TestErrorPaths/" + p.name
		named := false
		for _, tests := range errorPathTests {
			named = named || slices.Contains(tests, row)
		}
		if !named {
			t.Errorf("the table does not have %s", row)
		}
	}
}

func defines(t *testing.T, folder, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	must(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		must(t, err)
		return strings.Contains(string(source), text)
	})
}

// errorPath is a policy that comes to no answer, and why.
type errorPath struct {
	name string
	edit func(*v1alpha1.WebhookPolicy)
	// want is in the message; empty means that the binding is passed over.
	want string
	// late is in the message instead after a request of Ostiary has timed out; empty if that
	// changes nothing.
	late string
	// binding: not an expression fails but the binding cannot be evaluated, so
	// that failurePolicy alone decides, whatever the actions are.
	binding bool
	// native: the API server's own engine can be brought to fail alike.
	native bool
	fault  func(t *testing.T, c *cluster, g *gate) // holds to the end of the row
	// unanswered: the API server may give up before there is an answer.
	unanswered bool
}

const (
	costly  = `[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, [0,1,2,3,4,5,6,7,8,9].all(g, a+b+c+d+e+f+g >= 0)))))))`
	asking  = `authorizer.group("").resource("secrets").namespace("a").check("get").allowed()`
	reviews = "/subjectaccessreviews"
)

// slowly gives an evaluation the time that it takes with the race detector.
func slowly(edit func(*v1alpha1.WebhookPolicy)) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		within(30)(p)
		edit(p)
	}
}

func errorPaths() []errorPath {
	return []errorPath{
		{name: "cost", edit: slowly(saying(costly)), want: "cost limit exceeded", native: true},
		{name: "runtime", edit: saying(`object.data.missing == "x"`), want: "no such key: missing", native: true},
		{name: "variable", edit: reading(`object.data.missing`), want: "no such key: missing", native: true},
		{name: "condition", edit: onlyIf(`object.data.missing == "x"`), want: "no such key: missing", native: true},
		{
			name:    "params-deny",
			edit:    withParams("v1", "ResourceQuota", admissionregistrationv1.DenyAction),
			want:    "no params found",
			binding: true,
			native:  true,
		},
		{name: "params-allow", edit: withParams("v1", "ResourceQuota", admissionregistrationv1.AllowAction), native: true},
		{
			name:    "params-kind",
			edit:    withParams("missing.example.com/v1", "Thing", admissionregistrationv1.AllowAction),
			want:    "the API server has no kind Thing in missing.example.com/v1",
			binding: true,
		},
		{
			name:    "params-forbidden",
			edit:    withParams("v1", "LimitRange", admissionregistrationv1.AllowAction),
			want:    `resources: ["limitranges"], verbs: [get, list, watch]`,
			binding: true,
		},
		{
			name:    "params-unsynced",
			edit:    withParams("v1", "PodTemplate", admissionregistrationv1.AllowAction),
			want:    "objects of kind PodTemplate in v1 are still being listed",
			late:    "failed to configure binding: listing objects of kind PodTemplate in v1: ",
			binding: true,
			fault:   keeping("/podtemplates", silent),
		},
		{name: "authorizer-gone", edit: saying(asking + " || true"), want: "asking for authorization", fault: keeping(reviews, disconnects)},
		{name: "authorizer-silent", edit: saying(asking + " || true"), want: "asking for authorization", fault: keeping(reviews, silent)},
		{name: "authorizer-forbidden", edit: saying(asking + " || true"), want: "asking for authorization", fault: mayNotAsk},
		{name: "deadline", edit: slow, want: "", fault: keeping(reviews, silent), unanswered: true},
		{
			name:   "mutation",
			edit:   patching(`[JSONPatch{op: "remove", path: "/data/missing"}]`),
			want:   "Unable to remove nonexistent key",
			native: true,
		},
		{
			name:   "mutation-cost",
			edit:   slowly(patching(`[JSONPatch{op: "add", path: "/data/x", value: ` + costly + ` ? "a" : "b"}]`)),
			want:   "cost limit exceeded",
			native: true,
		},
		{name: "mutation-condition", edit: func(p *v1alpha1.WebhookPolicy) {
			patching(`[JSONPatch{op: "add", path: "/data/x", value: "a"}]`)(p)
			onlyIf(`object.data.missing == "x"`)(p)
		}, want: "no such key: missing", native: true},
		{
			name:  "mutation-authorizer",
			edit:  patching(`[JSONPatch{op: "add", path: "/data/x", value: ` + asking + ` ? "a" : "b"}]`),
			want:  "asking for authorization",
			fault: keeping(reviews, disconnects),
		},
	}
}

func reading(variable string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: variable}}
		saying(`variables.v == "x"`)(p)
	}
}

func onlyIf(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
	}
}

// withParams reads params that do not exist.
func withParams(version, kind string, missing admissionregistrationv1.ParameterNotFoundActionType) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		saying(`params.metadata.name == "x"`)(p)
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: version, Kind: kind}
		p.Spec.Bindings[0].ParamRef = &admissionregistrationv1.ParamRef{Namespace: "default", Name: "missing", ParameterNotFoundAction: &missing}
	}
}

// slow asks for more than can be answered in its time.
func slow(p *v1alpha1.WebhookPolicy) {
	within(1)(p)
	saying(`["a", "b", "c"].all(n, !authorizer.group("").resource("secrets").namespace(n).check("get").allowed())`)(p)
}

func patching(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = nil
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
		}}
	}
}

func keeping(part string, f fault) func(*testing.T, *cluster, *gate) {
	return func(t *testing.T, _ *cluster, g *gate) { g.keep(t, part, f) }
}

// mayNotAsk takes the permission for SubjectAccessReviews from Ostiary, and
// gives it back at the end.
func mayNotAsk(t *testing.T, c *cluster, _ *gate) {
	role := &rbacv1.ClusterRole{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: account}, role))
	before := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "subjectaccessreviews") })
	if len(role.Rules) != len(before.Rules)-1 {
		t.Fatal("the role has no rule for SubjectAccessReviews")
	}
	must(t, c.Update(t.Context(), role))
	t.Cleanup(func() {
		before.ResourceVersion = ""
		if err := c.Update(context.WithoutCancel(t.Context()), before); err != nil {
			t.Error(err)
		}
	})
}

// variant is one policy of a path.
type variant struct {
	errorPath
	policy *v1alpha1.WebhookPolicy
	fails  admissionregistrationv1.FailurePolicyType
	action admissionregistrationv1.ValidationAction
}

// variants are the path's policy with each failurePolicy and each action. A
// policy that only mutates has no use for actions.
func (p errorPath) variants(namespace string) []variant {
	var out []variant
	for _, fails := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		for _, action := range []admissionregistrationv1.ValidationAction{
			admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit,
		} {
			name := strings.ToLower(fmt.Sprintf("error-%s-%s-%s", p.name, fails, action))
			made := newPolicy(name, namespace, failing(fails), acting(action), p.edit)
			made.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{name}
			made.Spec.Bindings[0].Name = name
			if made.Spec.Mutates() && action != admissionregistrationv1.Deny {
				continue
			}
			out = append(out, variant{errorPath: p, policy: made, fails: fails, action: action})
		}
	}
	return out
}

// wrong says what is wrong with an answer to a variant.
func (v variant) wrong(a answer) string {
	denied, warned, audited := false, false, false
	if v.want != "" && v.fails == admissionregistrationv1.Fail {
		denied = v.binding || v.action == admissionregistrationv1.Deny
		warned = !denied && v.action == admissionregistrationv1.Warn
		audited = !denied && v.action == admissionregistrationv1.Audit
	}
	switch {
	case denied && (a.Code == 0 || !v.explains(a.Message)):
		return "not denied"
	case !denied && a.Code != 0:
		return "denied"
	case warned && (len(a.Warnings) != 1 || !v.explains(a.Warnings[0])), !warned && len(a.Warnings) > 0:
		return "warnings"
	case audited && (len(a.Failures) != 1 || !v.explains(a.Failures[0])), !audited && len(a.Failures) > 0:
		return "failures in the audit log"
	}
	return ""
}

// explains reports whether a text names the cause.
func (p errorPath) explains(text string) bool {
	return strings.Contains(text, p.want) || p.late != "" && strings.Contains(text, p.late)
}

// comparable compares mutations only with an API server that has native ones.
func (c *cluster) comparable(t *testing.T, paths []errorPath) []errorPath {
	t.Helper()
	minor := c.minor(t)
	for i := range paths {
		mutates := paths[i].variants("")[0].policy.Spec.Mutates()
		paths[i].native = paths[i].native && (!mutates || minor >= mutatesNatively)
	}
	return paths
}

// Promise: whatever keeps a policy from an answer follows failurePolicy and then
// validationActions, as in the API server, and is never taken for no match.
func TestErrorPaths(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	g.keep(t, "/podtemplates", silent)
	m := c.behind(t, g)
	c.mayRead(t, "", "resourcequotas")
	c.mayRead(t, "", "podtemplates")
	ours, theirs := c.namespace(t, nil), c.namespace(t, nil)
	var all []variant
	paths := c.comparable(t, errorPaths())
	for _, path := range paths {
		for _, v := range path.variants(ours) {
			c.apply(t, v.policy)
			if path.native {
				c.native(t, v.policy, theirs)
			}
			all = append(all, v)
		}
	}
	// Those of the API server's own take effect in the order that it hears of them.
	last := newPolicy("error-last", "", acting(admissionregistrationv1.Deny), saying("false"))
	c.native(t, last, theirs)
	for _, v := range all {
		c.awaitCondition(t, v.policy.Name, v1alpha1.ConditionRegistered, metav1.ConditionTrue)
	}
	a := c.asker(t)
	await(t).Eventually(func() int32 { return a.ask(t, named(theirs, "any")).Code }).ShouldNot(BeZero())
	must(t, c.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: last.Name}}))
	await(t).Eventually(func() int32 { return a.ask(t, named(theirs, "any")).Code }).Should(BeZero())
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			if path.fault != nil {
				path.fault(t, c, g)
			}
			for _, v := range all {
				if v.name == path.name {
					c.wantErrorPath(t, m, a, v, ours, theirs)
				}
			}
		})
	}
}

func named(namespace, name string) client.Object {
	object := configMap(namespace, good)
	object.Name = name
	return object
}

func (c *cluster) wantErrorPath(t *testing.T, m *process, a *asker, v variant, ours, theirs string) {
	t.Helper()
	object := named(ours, v.policy.Name)
	if v.unanswered {
		wantNoAnswer(t, a, v, object)
		return
	}
	counter := fmt.Sprintf("ostiary_policy_requests_total{decision=%q,operation=%q,policy=%q}", "error", "CREATE", v.policy.Name)
	if v.want == "" {
		counter = strings.Replace(counter, `"error"`, `"unmatched"`, 1)
	}
	var got answer
	await(t).Eventually(func() error {
		before, since := m.series(t, counter), c.audit.marked
		got = a.ask(t, object)
		if v.action == admissionregistrationv1.Audit {
			got.Failures = c.audit.failures(t, since, object)
		}
		if wrong := v.wrong(got); wrong != "" {
			return fmt.Errorf("%s: %s: %+v", v.policy.Name, wrong, got)
		}
		if after := m.series(t, counter); after != before+1 {
			return fmt.Errorf("%s: counted %v times, before %v", counter, after, before)
		}
		return nil
	}).Should(Succeed())
	if !v.native {
		return
	}
	object, since := named(theirs, v.policy.Name), c.audit.marked
	native := a.ask(t, object)
	if v.action == admissionregistrationv1.Audit {
		native.Failures = c.audit.failures(t, since, object)
	}
	if diff := cmp.Diff(native, got); diff != "" {
		t.Errorf("%s (-API server's own +Ostiary's):\n%s", v.policy.Name, diff)
	}
}

// wantNoAnswer checks a policy that takes too long. The API server gives up
// when Ostiary does, and either may be the first; a policy that does not deny
// is registered not to refuse anything then.
func wantNoAnswer(t *testing.T, a *asker, v variant, object client.Object) {
	t.Helper()
	refuses := v.fails == admissionregistrationv1.Fail && v.action == admissionregistrationv1.Deny
	await(t).Eventually(func() error {
		if got := a.ask(t, object); (got.Code != 0) != refuses {
			return fmt.Errorf("%s: %+v, want it refused: %t", v.policy.Name, got, refuses)
		}
		return nil
	}).Should(Succeed())
}

// TestSchemaThatIsNotPublished mutates a kind before its schema can be read.
func TestSchemaThatIsNotPublished(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	open := g.keep(t, "/openapi/v3/apis/policy/v1", disconnects)
	c.behind(t, g)
	namespace := c.namespace(t, nil)
	of := func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
			rule("policy", "poddisruptionbudgets", admissionregistrationv1.Create),
		}
		p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
		p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{p.Name}
		p.Spec.Validations = nil
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"mended": "yes"}}}`,
			},
		}}
	}
	c.apply(t, newPolicy("schema-fail", namespace, of), newPolicy("schema-ignore", namespace, of, failing(admissionregistrationv1.Ignore)))
	for _, name := range []string{"schema-fail", "schema-ignore"} {
		c.awaitCondition(t, name, v1alpha1.ConditionRegistered, metav1.ConditionTrue)
		await(t).Eventually(func() string { // first it is on its way
			ready := condition(c.awaitCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionFalse), v1alpha1.ConditionReady)
			return ready.Reason + ": " + ready.Message
		}).Should(And(HavePrefix("SchemaNotReady: "), ContainSubstring("PodDisruptionBudget in policy/v1")))
	}
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	await(t).Eventually(func() error { return c.Create(t.Context(), budget("schema-fail"), client.DryRunAll) }).
		Should(MatchError(And(ContainSubstring("WebhookPolicy 'schema-fail' denied request: "),
			ContainSubstring("the schema of policy/v1, Kind=PodDisruptionBudget is not known"))))
	ignored := budget("schema-ignore")
	must(t, c.Create(t.Context(), ignored, client.DryRunAll))
	if len(ignored.Labels) > 0 {
		t.Errorf("labels = %v without a schema", ignored.Labels)
	}

	open()
	for _, name := range []string{"schema-fail", "schema-ignore"} {
		c.awaitReady(t, name)
		mended := budget(name)
		must(t, c.Create(t.Context(), mended, client.DryRunAll))
		if mended.Labels["mended"] != "yes" {
			t.Errorf("%s: labels = %v", name, mended.Labels)
		}
	}
}
