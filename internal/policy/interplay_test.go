package policy

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
)

// interplay is what two features do together. The document docs/reference/interplay.md is written from
// the same file.
type interplay struct {
	Features [2]string `json:"features"`
	// What describes the result in the document.
	What string `json:"what"`
	// Want are the decisions of the phases, what follows from them, and the result of the audit.
	Want []string `json:"want"`
	// Test is another test that shows the interplay, instead of Want.
	Test string `json:"test,omitempty"`
}

// interplayScene is a policy that denies each request, or previews a mutation, with a request for it.
type interplayScene struct {
	features [2]string
	policy   *v1alpha1.WebhookPolicy
	raw      *admissionv1.AdmissionRequest
	host     Environment
}

func (s *interplayScene) has(feature string) bool { return slices.Contains(s.features[:], feature) }

func newInterplayScene(t *testing.T, features [2]string) *interplayScene {
	t.Helper()
	s := &interplayScene{features: features, host: testWorld.host()}
	s.policy = policyFrom(t, "p", "validations: [{name: v, expression: 'false', message: m}]\nbindings: [{name: b}]")
	spec, binding := &s.policy.Spec, &s.policy.Spec.Bindings[0]
	spec.Ratchet, spec.BreakGlass = s.has("ratchet"), s.has("break-glass")
	if s.has("podTemplates") {
		spec.PodTemplates = &v1alpha1.PodTemplates{}
	}
	if s.has("exceptions") {
		spec.Exceptions = &v1alpha1.Exceptions{}
		s.host.Exceptions = exceptions.NewIndex([]*exceptions.Entry{exceptionOfEverything()})
	}
	if s.has("params") {
		spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		spec.Validations[0].Expression = `params.data.max == "2"`
		allow := admissionregistrationv1.AllowAction
		binding.ParamRef = &admissionregistrationv1.ParamRef{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": "a"}}, ParameterNotFoundAction: &allow,
		}
	}
	if s.has("lookups") {
		s.addLookup(t)
	}
	if s.has("preview") {
		spec.Mutations = policyFrom(t, "m", mutations(label("a", `"b"`))).Spec.Mutations
		binding.MutationAction = v1alpha1.MutationActionPreview
	}
	if s.has("rollout") {
		s.addRollout(binding)
	}
	if s.has("break-glass") {
		s.host.Authorizer = &answering{decision: authorizer.DecisionAllow}
	}
	if s.has("suspend") {
		until := s.host.Now().Add(time.Hour).Format(time.RFC3339)
		s.policy.Annotations = map[string]string{v1alpha1.AnnotationSuspendedUntil: until}
	}
	s.setRequest(t)
	return s
}

// exceptionOfEverything lets Pods and Deployments of the namespace of the tests pass.
func exceptionOfEverything() *exceptions.Entry {
	x := &v1alpha1.WebhookPolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}
	x.Spec = v1alpha1.WebhookPolicyExceptionSpec{
		PolicyName: "p", Validations: []string{v1alpha1.AllValidations}, Reason: "r",
		Match: []v1alpha1.ExceptionMatch{{Resources: []string{"pods"}}, {Group: "apps", Resources: []string{"deployments"}}},
	}
	return exceptions.NewEntry(x)
}

// addLookup makes the validation fail because of a stored object.
func (s *interplayScene) addLookup(t *testing.T) {
	t.Helper()
	s.policy.Spec.Lookups = policyFrom(t, "l", `lookups: [{name: limits, resource: {version: v1, resource: configmaps},
  storedKeys: '[stored.data.kind]', requestKeys: '[(object == null ? oldObject : object).kind]'}]`).Spec.Lookups
	s.policy.Spec.Validations[0].Expression += " || lookups.limits.size() == 0"
	s.host.Lookups = storedObjects{"configmaps": {"{metadata: {namespace: shop, name: limit}, data: {kind: Pod}}"}}
}

// addRollout adds a rollout in its second step, which warns in the namespace of the tests.
func (s *interplayScene) addRollout(b *v1alpha1.Binding) {
	type actions = []admissionregistrationv1.ValidationAction
	b.MutationAction = ""
	b.Rollout = &v1alpha1.Rollout{
		Steps: []v1alpha1.RolloutStep{
			{Name: "learn", MinDurationSeconds: 1, ValidationActions: actions{admissionregistrationv1.Audit}},
			{
				Name: "warn", MinDurationSeconds: 1, ValidationActions: actions{admissionregistrationv1.Warn},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}},
			},
		},
		Final: v1alpha1.RolloutFinal{ValidationActions: actions{admissionregistrationv1.Deny}},
	}
	s.policy.Status.Bindings = []v1alpha1.BindingStatus{{Name: "b", Step: "warn", Token: "t"}}
}

func (s *interplayScene) setRequest(t *testing.T) {
	t.Helper()
	operation := admission.Create
	switch {
	case s.has("DELETE"):
		operation = admission.Delete
	case s.has("ratchet"):
		operation = admission.Update
	}
	s.raw = podInput(t, operation).review(t)
	if s.has("podTemplates") {
		old := ""
		if operation != admission.Create {
			old = workloadYAML("Deployment", "", "{template: "+otherYAML+"}")
		}
		s.raw = workloadRequest(t, deploymentsResource, workloadYAML("Deployment", "", "{template: "+templateYAML+"}"), old)
		if operation == admission.Delete {
			s.raw.Operation, s.raw.Object.Raw = admissionv1.Delete, nil
		}
	}
	if s.has("generateName") && operation == admission.Create {
		s.raw.Name = ""
		s.raw.Object.Raw = []byte(strings.Replace(string(s.raw.Object.Raw), `"name":"web","namespace"`, `"generateName":"web-","namespace"`, 1))
	}
	dryRun := s.has("dry run")
	s.raw.DryRun = &dryRun
}

// result describes what becomes of the request.
func (s *interplayScene) result(t *testing.T) (out []string) {
	t.Helper()
	compiled := mustCompile(t, sharedCompiler, s.policy)
	if s.has("audit") {
		return s.audited(t, compiled)
	}
	group := NewGroup([]*Compiled{compiled})
	if s.has("podTemplates") {
		group = NewTemplateGroup([]*Compiled{compiled})
	}
	var decisions []string
	s.host.Observe = func(_ string, _ admissionv1.Operation, d Decision, _ time.Duration) {
		decisions = append(decisions, string(d))
	}
	phases := []struct {
		name string
		run  func() *admissionv1.AdmissionResponse
	}{
		{"mutating", func() *admissionv1.AdmissionResponse { return mutate(t, group, s.raw, s.host) }},
		{"validating", func() *admissionv1.AdmissionResponse { return evaluate(t, group, s.raw, s.host) }},
	}
	if !s.has("preview") {
		phases = phases[1:]
	}
	for _, phase := range phases {
		decisions = nil
		resp := phase.run()
		text := phase.name + ": " + cmp.Or(strings.Join(decisions, ", "), "not evaluated")
		if !resp.Allowed {
			text += ", denied"
		}
		if len(resp.Patch) > 0 {
			text += ", changed"
		}
		if len(resp.Warnings) > 0 {
			text += fmt.Sprintf(", %d warned", len(resp.Warnings))
		}
		out = append(out, text)
	}
	return out
}

func (s *interplayScene) audited(t *testing.T, compiled *Compiled) []string {
	t.Helper()
	if s.raw.Operation == admissionv1.Create {
		s.raw.Operation, s.raw.OldObject = admissionv1.Update, s.raw.Object
	}
	got := NewAuditor(s.policy, compiled).Evaluate(t.Context(), s.raw, s.host)
	out := "audit: " + string(got.Decision)
	if got.Denied {
		out += ", denied"
	}
	if got.DeniesPods {
		out += ", Pods denied"
	}
	if got.WouldChange {
		out += ", would change"
	}
	return []string{out}
}

// TestInterplay evaluates each pair of features together. Every pair has a case, or names another test.
func TestInterplay(t *testing.T) {
	features := []string{
		"ratchet", "podTemplates", "params", "break-glass", "exceptions", "rollout", "preview", "audit", "suspend", "DELETE",
		"generateName", "dry run", "lookups",
	}
	text, err := os.ReadFile("testdata/interplay.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []interplay
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	var pairs, wantPairs [][2]string
	for i := range features {
		for j := i + 1; j < len(features); j++ {
			wantPairs = append(wantPairs, [2]string{features[i], features[j]})
		}
	}
	for _, c := range cases {
		pairs = append(pairs, c.Features)
		t.Run(strings.Join(c.Features[:], " and "), func(t *testing.T) {
			switch {
			case c.What == "":
				t.Error("the document does not say what they do")
			case c.Test != "" && len(c.Want) == 0: // whose existence hack/docs checks
			default:
				if diff := gocmp.Diff(c.Want, newInterplayScene(t, c.Features).result(t)); diff != "" {
					t.Errorf("decisions (-want +got):\n%s", diff)
				}
			}
		})
	}
	if diff := gocmp.Diff(wantPairs, pairs); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
}
