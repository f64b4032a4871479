package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/truncate"
)

var (
	earlier = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	now     = metav1.NewTime(earlier.Add(time.Hour))
)

func newPolicy() *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Generation: 3},
		Spec:       v1alpha1.WebhookPolicySpec{Validations: []admissionregistrationv1.Validation{{Expression: "true"}}},
	}
}

func TestConditions(t *testing.T) {
	refs := []v1alpha1.WebhookReference{{Kind: "ValidatingWebhookConfiguration", Configuration: "ostiary-validate-g", Webhook: "g"}}
	tests := map[string]struct {
		facts facts
		want  []string // type=status reason: message
	}{
		"nothing is known yet": {
			want: []string{
				"Accepted=Unknown Loading: this generation has not been compiled yet",
				"Registered=False Loading: this generation has not been compiled yet",
				"Ready=False Loading: this generation has not been compiled yet",
				"Reconciling=True Loading: this generation has not been compiled yet",
			},
		},
		"it does not compile": {
			facts: facts{loaded: true, problems: "spec.validations[0].expression: no"},
			want: []string{
				"Accepted=False Invalid: spec.validations[0].expression: no",
				"Registered=False Invalid: not registered: the policy is not accepted",
				"Ready=False Invalid: spec.validations[0].expression: no",
				"Stalled=True Invalid: change the policy: see condition Accepted",
			},
		},
		"it does not compile any more": {
			facts: facts{loaded: true, problems: "no", planned: true, registered: true},
			want: []string{
				"Accepted=False Invalid: no",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g; failurePolicy Fail applies to matching requests until the policy is fixed",
				"Ready=False Invalid: no",
				"Stalled=True Invalid: change the policy: see condition Accepted",
			},
		},
		"it is registered, and a replica has not loaded it": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true, notReady: "waiting for replica b, which has not loaded it yet"},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=False WaitingForReplicas: waiting for replica b, which has not loaded it yet",
				"Ready=False WaitingForReplicas: waiting for replica b, which has not loaded it yet",
				"Reconciling=True WaitingForReplicas: waiting for replica b, which has not loaded it yet",
			},
		},
		"another client keeps changing its configuration": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true, conflict: "x keeps changing it"},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True Enforcing: x keeps changing it; requests that fail a validation are denied",
			},
		},
		"its backend has no bundle, and it was in force before": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true, inForce: 2, missing: missingDependency{reason: "NotFound", message: "no such Secret"}},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=False Pending: waiting for the CA bundle of the backend: see condition CAReady; until then, generation 2 stays registered",
				"Ready=False NotFound: no such Secret",
				"Reconciling=True NotFound: no such Secret",
			},
		},
		"its backend has no bundle, and nobody knows what was before": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true, inForce: 2, placeholder: true, missing: missingDependency{reason: "NotFound", message: "no such Secret"}},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=False Pending: waiting for the CA bundle of the backend: see condition CAReady; until then, failurePolicy Fail applies to matching requests",
				"Ready=False NotFound: no such Secret",
				"Reconciling=True NotFound: no such Secret",
			},
		},
		"it is registered, without its conditions": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true, delegationError: "undeclared reference to 'sets'"},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g; " +
					"the API server rejects its match conditions, so Ostiary evaluates them: undeclared reference to 'sets'",
				"Ready=True Enforcing: requests that fail a validation are denied",
			},
		},
		"there is no certificate": {
			facts: facts{loaded: true, accepted: true, planned: true, waiting: true, why: "does not exist yet"},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=False NoCertificate: waiting for a serving certificate",
				"Ready=False NoCertificate: waiting for a serving certificate",
				"Reconciling=True NoCertificate: waiting for a serving certificate",
			},
		},
		"it is not registered": {
			facts: facts{loaded: true, accepted: true, planned: true, why: "ValidatingWebhookConfiguration x does not exist yet"},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=False Pending: ValidatingWebhookConfiguration x does not exist yet",
				"Ready=False Pending: ValidatingWebhookConfiguration x does not exist yet",
				"Reconciling=True Pending: ValidatingWebhookConfiguration x does not exist yet",
			},
		},
		"it lacks something, registered": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true, missing: missingDependency{reason: ReasonParamsNotReady, message: "none are there"}},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=False ParamsNotReady: none are there",
				"Reconciling=True ParamsNotReady: none are there",
			},
		},
		"it lacks something, not registered": {
			facts: facts{loaded: true, accepted: true, planned: true, why: "x does not exist yet", missing: missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=False Pending: x does not exist yet",
				"Ready=False SchemaNotReady: no schema",
				"Reconciling=True SchemaNotReady: no schema",
			},
		},
		"it lacks something, and does not compile": {
			facts: facts{loaded: true, problems: "no", missing: missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}},
			want: []string{
				"Accepted=False Invalid: no",
				"Registered=False Invalid: not registered: the policy is not accepted",
				"Ready=False Invalid: no",
				"Stalled=True Invalid: change the policy: see condition Accepted",
			},
		},
		"it is in force": {
			facts: facts{loaded: true, accepted: true, planned: true, registered: true},
			want: []string{
				"Accepted=True Accepted: all expressions compile",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True Enforcing: requests that fail a validation are denied",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var list []metav1.Condition
			for _, c := range conditions(newPolicy(), tc.facts, refs) {
				set(&list, c, 3, now)
			}
			var got []string
			for _, c := range list {
				got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
				if c.ObservedGeneration != 3 || !c.LastTransitionTime.Equal(&now) {
					t.Errorf("condition %s is of generation %d and time %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObserveKeepsTransitionTimes(t *testing.T) {
	p := newPolicy()
	p.Status = observe(p, nil, inputs{}, earlier)
	again := observe(p, nil, inputs{}, now)
	if diff := cmp.Diff(p.Status, again); diff != "" {
		t.Errorf("a status that did not change was changed (-before +after):\n%s", diff)
	}
}

func TestObserveTakesReconcilingAway(t *testing.T) {
	p := newPolicy()
	p.Status = observe(p, nil, inputs{}, earlier)
	for _, c := range conditions(p, facts{loaded: true, accepted: true, planned: true, registered: true}, nil) {
		set(&p.Status.Conditions, c, 3, now)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionReconciling {
			t.Errorf("condition %s=%s is left", c.Type, c.Status)
		}
	}
}

func TestObserveSpec(t *testing.T) {
	warn := []v1alpha1.Binding{{Name: "b", ValidationActions: []admissionregistrationv1.ValidationAction{"Audit", "Warn"}}}
	mutations := []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch}}
	tests := map[string]struct {
		mutations []admissionregistrationv1.Mutation
		bindings  []v1alpha1.Binding
		want      v1alpha1.WebhookPolicyStatus
	}{
		"default":       {want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Deny", FailurePolicy: "Fail"}},
		"never denying": {bindings: warn, want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Warn,Audit", FailurePolicy: "Ignore"}},
		"mutating":      {mutations: mutations, want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Mutate,Deny", FailurePolicy: "Fail"}},
		"mutating, never denying": {
			mutations: mutations, bindings: warn,
			want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Mutate,Warn,Audit", FailurePolicy: "Fail"},
		},
	}
	annotating := newPolicy()
	annotating.Spec.Validations = nil
	annotating.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: "'v'"}}
	if got := observe(annotating, nil, inputs{}, now); got.Actions != "Annotate" {
		t.Errorf("actions of a policy with audit annotations alone: %q, want Annotate", got.Actions)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			p.Spec.Bindings, p.Spec.Mutations = tc.bindings, tc.mutations
			got := observe(p, nil, inputs{}, now)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(v1alpha1.WebhookPolicyStatus{}, "Conditions")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEffectMessage(t *testing.T) {
	mutations := []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch}}
	tests := map[string]struct {
		change func(*v1alpha1.WebhookPolicySpec)
		want   string
	}{
		"validates": {
			change: func(*v1alpha1.WebhookPolicySpec) {},
			want:   "requests that fail a validation are denied",
		},
		"only annotates": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Validations, s.AuditAnnotations = nil, []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'b'"}}
			},
			want: "matching requests are annotated in the audit log",
		},
		"mutates": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.Mutations, s.Validations = mutations, nil },
			want:   "matching requests are mutated",
		},
		"does both": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.Mutations = mutations },
			want:   "matching requests are mutated; requests that fail a validation are denied",
		},
		"mutates and annotates": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Mutations, s.Validations, s.AuditAnnotations = mutations, nil, []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'b'"}}
			},
			want: "matching requests are mutated; matching requests are annotated in the audit log",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			tc.change(&p.Spec)
			if got := effectMessage(p); got != tc.want {
				t.Errorf("effectMessage() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var list []metav1.Condition
	set(&list, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "R", Message: strings.Repeat("é", maxMessage)}, 1, now)
	if got := len(list[0].Message); got > 32<<10 {
		t.Errorf("a message of %d bytes, which the API server refuses", got)
	}
	if got := short(strings.Repeat("é", truncate.EventMessage)); len(got) > 1<<10 || !strings.HasSuffix(got, "é...") {
		t.Errorf("an event of %d bytes that ends with %q", len(got), got[len(got)-8:])
	}
}

// A new leader has read policies later than the others report, and takes back
// nothing that was told of a generation.
func TestReplicasAreWaitedForOnce(t *testing.T) {
	waits := facts{loaded: true, accepted: true, planned: true, registered: true, notReady: "waiting for replica b"}
	tests := map[string]struct {
		status     metav1.ConditionStatus
		generation int64
		want       metav1.ConditionStatus
	}{
		"told of this generation":        {metav1.ConditionTrue, 3, metav1.ConditionTrue},
		"told of the one before":         {metav1.ConditionTrue, 2, metav1.ConditionFalse},
		"this generation was not before": {metav1.ConditionFalse, 3, metav1.ConditionFalse},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRegistered, Status: tc.status, ObservedGeneration: tc.generation}}
			if got := registeredCondition(p, waits, nil); got.Status != tc.want {
				t.Errorf("condition %+v, want %s", got, tc.want)
			}
		})
	}
}
