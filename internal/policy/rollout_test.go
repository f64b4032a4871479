package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const stagedSpec = `
validations: [{expression: 'false', message: refused}]
bindings:
- name: b
  rollout:
    steps:
    - {name: learn, validationActions: [Audit], minDurationSeconds: 1}
    - {name: warn-dev, validationActions: [Warn], minDurationSeconds: 1, namespaceSelector: {matchLabels: {tier: dev}}}
    - {name: warn-prod, validationActions: [Warn], minDurationSeconds: 1, namespaceSelector: {matchLabels: {tier: prod}}}
    - {name: deny-prod, validationActions: [Deny], minDurationSeconds: 1, namespaceSelector: {matchLabels: {tier: prod}}}
    - {name: warn, validationActions: [Warn], minDurationSeconds: 1}
    final: {validationActions: [Deny]}
`

// inStep returns a policy with a rollout in a step; "" is no recorded state, and "final" the final action.
func inStep(tb testing.TB, spec, step string) *v1alpha1.WebhookPolicy {
	tb.Helper()
	p := policyFrom(tb, "p", spec)
	if step != "" {
		s := v1alpha1.BindingStatus{Name: "b", Step: step, Token: "key-3"}
		if step == "final" {
			s.Step, s.Final = "", true
		}
		p.Status.Bindings = []v1alpha1.BindingStatus{s}
	}
	return p
}

// TestSteps sends requests from the namespace shop, which has the label tier=prod.
func TestSteps(t *testing.T) {
	pod := podInput(t, admission.Create)
	clusterScoped := testInputs(t)["create cluster role"]
	for name, tt := range map[string]struct {
		step     string
		in       input
		want     Decision
		evidence []string
		unknown  bool // the namespace cannot be read
	}{
		"no recorded state":                              {step: "", in: pod, want: DecisionAudit},
		"an unknown step":                                {step: "unknown", in: pod, want: DecisionAudit},
		"the first step":                                 {step: "learn", in: pod, want: DecisionAudit, evidence: []string{"key"}},
		"a step for another namespace":                   {step: "warn-dev", in: pod, want: DecisionAudit},
		"a step for this namespace":                      {step: "warn-prod", in: pod, want: DecisionWarn, evidence: []string{"key"}},
		"a step that denies in this namespace":           {step: "deny-prod", in: pod, want: DecisionDeny, evidence: []string{"key"}},
		"a later step without a selector":                {step: "warn", in: pod, want: DecisionWarn, evidence: []string{"key"}},
		"the final action":                               {step: "final", in: pod, want: DecisionDeny},
		"a cluster-scoped object in a step that denies":  {step: "deny-prod", in: clusterScoped, want: DecisionAudit},
		"a cluster-scoped object in the final action":    {step: "final", in: clusterScoped, want: DecisionDeny},
		"an unknown namespace in a step that warns":      {step: "warn-prod", in: pod, unknown: true, want: DecisionAudit},
		"an unknown namespace in a step that denies":     {step: "deny-prod", in: pod, unknown: true, want: DecisionError},
		"an unknown namespace in a step without a label": {step: "warn", in: pod, unknown: true, want: DecisionWarn, evidence: []string{"key"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := inStep(t, stagedSpec, tt.step)
			decisions, host := map[string]Decision{}, testWorld.host()
			var evidence []string
			host.Observe = observeInto(decisions)
			if tt.unknown {
				host.Matcher = (&world{namespaces: namespaceMap{}}).matcher()
			}
			host.Violated = func(v ViolationReport) { evidence = append(evidence, v.Evidence...) }
			response := evaluate(t, NewGroup([]*Compiled{mustCompile(t, sharedCompiler, p)}), tt.in.review(t), host)
			if decisions["p"] != tt.want {
				t.Errorf("decision %s, want %s", decisions["p"], tt.want)
			}
			if want := tt.want != DecisionDeny && tt.want != DecisionError; response.Allowed != want {
				t.Errorf("allowed: %t, want %t", response.Allowed, want)
			}
			if diff := cmp.Diff(tt.evidence, evidence); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStepsOfTemplates: the actions for pod templates apply from the final action on.
func TestStepsOfTemplates(t *testing.T) {
	spec := "podTemplates: {validationActions: [Deny]}\nmatchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], " +
		"apiVersions: [v1], resources: [pods]}]}" + stagedSpec
	workload := workloadRequest(t, deploymentsResource, workloadYAML("Deployment", "", "{template: "+templateYAML+"}"), "")
	for step, want := range map[string]Decision{
		"": DecisionAudit, "learn": DecisionAudit, "warn-prod": DecisionWarn, "deny-prod": DecisionDeny, "warn": DecisionWarn,
		"final": DecisionDeny,
	} {
		t.Run("in step "+step, func(t *testing.T) {
			decisions, host := map[string]Decision{}, testWorld.host()
			host.Observe = observeInto(decisions)
			group := NewTemplateGroup([]*Compiled{mustCompile(t, sharedCompiler, inStep(t, spec, step))})
			if response := evaluate(t, group, workload, host); response.Allowed != (want != DecisionDeny) || decisions["p"] != want {
				t.Errorf("allowed %t, decision %s, want %s", response.Allowed, decisions["p"], want)
			}
		})
	}
}

// TestStepsOfUnreadableObjects: an object that cannot be decoded is denied only in steps that deny, and can always be deleted.
func TestStepsOfUnreadableObjects(t *testing.T) {
	for step, wantAllowed := range map[string]bool{"learn": true, "warn-prod": true, "deny-prod": false, "warn": true, "final": false} {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Delete} {
			t.Run(step+" "+string(operation), func(t *testing.T) {
				raw := podInput(t, admission.Operation(operation)).review(t)
				if raw.Object.Raw = []byte(`{"a":1e400}`); operation == admissionv1.Delete {
					raw.OldObject, raw.Object.Raw = raw.Object, nil
				}
				p := inStep(t, strings.Replace(stagedSpec, "'false'", "'object == oldObject'", 1), step)
				response := evaluate(t, NewGroup([]*Compiled{mustCompile(t, sharedCompiler, p)}), raw, testWorld.host())
				if want := wantAllowed || operation == admissionv1.Delete; response.Allowed != want {
					t.Errorf("allowed: %t, want %t: %v", response.Allowed, want, response.Result)
				}
			})
		}
	}
}

func TestCountsFor(t *testing.T) {
	for step, want := range map[string]bool{"": false, "learn": true, "warn-prod": true, "final": false} {
		c := mustCompile(t, sharedCompiler, inStep(t, stagedSpec, step))
		if got := c.CountsFor("key"); got != want || c.CountsFor("other") || c.CountsFor("") {
			t.Errorf("in step %q: got %t, want %t", step, got, want)
		}
	}
}
