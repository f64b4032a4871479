package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/test/exceptioncases"
)

// pulling demands and sets the pull policy Always, as the plugin AlwaysPullImages does.
type pulling struct{}

func (pulling) Rules() []admissionregistrationv1.RuleWithOperations { return nil }

func (pulling) Validate(_ context.Context, c *pluginapi.Call) error { return c.Forbid("no") }

func (pulling) Admit(_ context.Context, c *pluginapi.Call) (*unstructured.Unstructured, error) {
	out := c.Object().DeepCopy()
	out.SetLabels(map[string]string{"pulls": "always"})
	return out, nil
}

// exceptionCase is a case of the table with what evaluates it.
type exceptionCase struct {
	*exceptioncases.Case
	compiled *Compiled
	group    *Group
	raw      *admissionv1.AdmissionRequest
	host     Environment

	decisions  map[string]Decision
	violations []reported
	used       []string
}

func newExceptionCase(t *testing.T, c *exceptioncases.Case) *exceptionCase {
	t.Helper()
	p, err := c.Policy()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Request()
	if err != nil {
		t.Fatal(err)
	}
	out := &exceptionCase{Case: c, raw: raw, host: worldOf(c).host(), decisions: map[string]Decision{}}
	if p.Spec.Plugin != nil {
		p.Spec.MatchConstraints = allRules()
		out.compiled, _ = sharedCompiler.CompilePlugin(p, pulling{}, nil)
	} else {
		out.compiled = mustCompile(t, sharedCompiler, p)
	}
	out.group = NewGroup([]*Compiled{out.compiled})
	if p.Spec.PodTemplates != nil && raw.Resource.Resource != "pods" {
		out.group = NewTemplateGroup([]*Compiled{out.compiled})
	}
	var entries []*exceptions.Entry
	for _, x := range c.Exceptions() {
		entries = append(entries, exceptions.NewEntry(x))
	}
	out.host.Exceptions, out.host.Now = exceptions.NewIndex(entries), exceptioncases.Noon
	out.host.Observe, out.host.Violated = observeInto(out.decisions), reportInto(&out.violations)
	out.host.Excepted = func(policy string, by exceptions.Key) { out.used = append(out.used, policy+" "+by.String()) }
	out.host.Authorizer = &glass{skippable: map[string]bool{"p": c.BreakGlass}}
	return out
}

// worldOf returns the params of a case.
func worldOf(c *exceptioncases.Case) *world {
	w := *testWorld
	objects := make([]runtime.Object, len(c.Params))
	for i, data := range c.Params {
		content := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"name": data["name"]}}
		content["metadata"] = map[string]any{"name": data["name"], "namespace": "shop", "labels": map[string]any{"of": "case"}}
		objects[i] = &unstructured.Unstructured{Object: content}
	}
	w.params = map[admissionregistrationv1.ParamKind]paramObjects{configMaps: {scope: meta.RESTScopeNamespace, objects: objects}}
	return &w
}

// TestExceptions shows how a policy decides with exceptions, alone and in a batch.
func TestExceptions(t *testing.T) {
	cases, err := exceptioncases.All()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		t.Run(cases[i].Name, func(t *testing.T) { newExceptionCase(t, &cases[i]).check(t) })
	}
}

func (c *exceptionCase) check(t *testing.T) {
	t.Helper()
	evaluates := evaluate
	if c.Mutating {
		evaluates = mutate
	}
	resp := evaluates(t, c.group, c.raw, c.host)
	want := Decision(c.Want)
	if got := c.decisions["p"]; got != want {
		t.Errorf("the decision is %q, want %q; message: %v", got, want, resp.Result)
	}
	if got := resp.AuditAnnotations[auditExceptedKey]; got != c.By {
		t.Errorf("the annotation is %q, want %q", got, c.By)
	}
	if denies := want == DecisionDeny || c.Denies; resp.Allowed == denies {
		t.Errorf("the request is allowed: %t, message %v", resp.Allowed, resp.Result)
	}
	if want == DecisionExcepted {
		c.checkExcepted(t, resp)
	}
	if c.Denied != nil && !slices.Equal(c.Denied, causes(resp)) {
		t.Errorf("the validations %q deny, want %q", causes(resp), c.Denied)
	}
}

// checkExcepted checks what a request that passes leaves behind.
func (c *exceptionCase) checkExcepted(t *testing.T, resp *admissionv1.AdmissionResponse) {
	t.Helper()
	var wantWarnings []string
	if c.DeniesPods {
		wantWarnings = []string{"WebhookPolicy 'p' will deny the Pods that controllers create from spec.template: " +
			"correct the template, or exclude the workload from the policy"}
	}
	if diff := cmp.Diff(wantWarnings, resp.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if len(resp.Patch) > 0 || resp.AuditAnnotations["validation_failure"] != "" {
		t.Errorf("patch %s, annotations %v", resp.Patch, resp.AuditAnnotations)
	}
	if len(c.used) == 0 || !slices.Equal(c.used, slices.Compact(slices.Clone(c.used))) {
		t.Errorf("%q are used, want each once", c.used)
	}
	if len(c.violations) != 1 || c.violations[0].Decision != DecisionExcepted || c.violations[0].Violations[0].Exception == nil {
		t.Errorf("reported are %+v, want an excepted violation", c.violations)
	}
}

func causes(resp *admissionv1.AdmissionResponse) (out []string) {
	if resp.Result == nil || resp.Result.Details == nil {
		return nil
	}
	for _, cause := range resp.Result.Details.Causes {
		out = append(out, string(cause.Type))
	}
	return out
}

// TestAuditedExceptions shows that the audit decides about the stored object as admission does.
func TestAuditedExceptions(t *testing.T) {
	cases, err := exceptioncases.All()
	if err != nil {
		t.Fatal(err)
	}
	audited := 0
	for i := range cases {
		c := &cases[i]
		if c.DiffersInAudit || c.Mutating || c.BreakGlass || c.Operation == "DELETE" || c.Subresource != "" || c.GenerateName ||
			c.RequestName != "" {
			continue
		}
		audited++
		t.Run(c.Name, func(t *testing.T) {
			x := newExceptionCase(t, c)
			p, _ := c.Policy()
			x.raw.Operation, x.raw.OldObject = admissionv1.Update, x.raw.Object
			if c.Kind == "Deployment" || p.Spec.PodTemplates != nil {
				x.raw.Operation = admissionv1.Create
				x.raw.OldObject = runtime.RawExtension{}
			}
			x.host.Observe = func(string, admissionv1.Operation, Decision, time.Duration) { t.Error("the decision is counted") }
			got := NewAuditor(p, x.compiled).Evaluate(t.Context(), x.raw, x.host)
			if got.Decision != Decision(c.Want) {
				t.Errorf("the decision is %q, want %q: %+v", got.Decision, c.Want, got.Violations)
			}
			if denies := c.Want == "deny" || c.Denies; got.Denied != denies || got.DeniesPods != c.DeniesPods {
				t.Errorf("denied %t, Pods %t, want %t, %t", got.Denied, got.DeniesPods, denies, c.DeniesPods)
			}
			if len(x.used) > 0 {
				t.Errorf("%q are counted as used", x.used)
			}
		})
	}
	if audited < 80 {
		t.Errorf("%d cases, want at least 80", audited)
	}
}

// TestPassingRequestsCostNothing shows that a request which passes does not look for exceptions.
func TestPassingRequestsCostNothing(t *testing.T) {
	p := policyFrom(t, "p", "exceptions: {}\nvalidations: [{name: a, expression: 'true'}, "+
		"{name: b, expression: 'size(namespaceObject.metadata.name) > 0'}]")
	group := NewGroup([]*Compiled{mustCompile(t, sharedCompiler, p)})
	host := testWorld.host()
	host.Exceptions = noLookUp{t}
	if resp := evaluate(t, group, podInput(t, admission.Create).review(t), host); !resp.Allowed {
		t.Errorf("the request is denied: %v", resp.Result)
	}
}

type noLookUp struct{ t *testing.T }

func (n noLookUp) For(policy, namespace string) []*exceptions.Entry {
	n.t.Errorf("exceptions from %s are looked for in %q", policy, namespace)
	return nil
}

// TestTriedExceptions shows that a trace says why exceptions have no effect.
func TestTriedExceptions(t *testing.T) {
	names := func(t *testing.T, list string) exceptioncases.Case {
		t.Helper()
		var c exceptioncases.Case
		if err := json.Unmarshal([]byte(list), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := names(t, `{"exceptions": [
		{"name": "a", "created": -9, "validations": ["has-owner"]}, {"name": "b", "created": -8, "ends": 0},
		{"name": "c", "created": -7, "match": [{"group": "apps", "resources": ["pods"]}]},
		{"name": "d", "created": -6, "condition": "object.spec.missing == 1"}, {"name": "e", "created": -5}, {"name": "f", "created": -4}]}`)
	x := newExceptionCase(t, &c)
	var got []TriedException
	ctx := WithTrace(t.Context(), Trace{Exception: func(tried TriedException) { got = append(got, tried) }})
	if _, err := x.group.Validate(ctx, x.raw, x.host); err != nil {
		t.Fatal(err)
	}
	tried := func(name, mismatch string) TriedException {
		key := exceptions.Key{Namespace: "shop", Name: name}
		return TriedException{Policy: "p", Validation: "has-team", Exception: key, Mismatch: mismatch}
	}
	want := []TriedException{
		tried("a", "spec.validations does not name it"), tried("b", exceptions.ReasonExpired), tried("c", string(exceptions.OtherResource)),
		tried("d", string(exceptions.ConditionError)+": expression 'object.spec.missing == 1' resulted in error: no such key: missing"),
		tried("e", ""),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// BenchmarkExceptions is a request that passes, and one that is denied, with 10,000 exceptions from
// 1,000 policies, of which ten are from the policy and for other objects of the namespace.
func BenchmarkExceptions(b *testing.B) {
	var entries []*exceptions.Entry
	for i := range 10_000 {
		x := &v1alpha1.WebhookPolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("x-%d", i)}}
		x.Spec.PolicyName, x.Spec.Validations = fmt.Sprintf("p-%d", i%1000), []string{"has-team"}
		x.Spec.Match = []v1alpha1.ExceptionMatch{{Resources: []string{"pods"}, Names: []string{fmt.Sprintf("pod-%d", i)}}}
		entries = append(entries, exceptions.NewEntry(x))
	}
	index := exceptions.NewIndex(entries)
	for _, permits := range []string{"", "exceptions: {}\n"} {
		for _, expression := range []string{"object.spec.containers.all(c, c.name != '')", "object.spec.containers.all(c, c.name == '')"} {
			p := policyFrom(b, "p-7", permits+"validations: [{name: has-team, expression: \""+expression+"\", message: m}]")
			group := NewGroup([]*Compiled{mustCompile(b, sharedCompiler, p)})
			raw, host := podInput(b, admission.Create).review(b), testWorld.host()
			host.Exceptions = index
			denied := strings.Contains(expression, "==")
			b.Run(fmt.Sprintf("permitted=%t/denied=%t", permits != "", denied), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if resp := evaluate(b, group, raw, host); resp.Allowed == denied {
						b.Fatal(resp.Result)
					}
				}
			})
		}
	}
}
