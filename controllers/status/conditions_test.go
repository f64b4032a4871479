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
		Spec:       v1alpha1.WebhookPolicySpec{Validations: []v1alpha1.Validation{{Expression: "true"}}},
	}
}

func TestConditions(t *testing.T) {
	refs := []v1alpha1.WebhookReference{{Kind: "ValidatingWebhookConfiguration", Configuration: "ostiary-validate-g", Webhook: "g"}}
	tests := map[string]struct {
		observed observation
		want     []string // type=status reason: message
	}{
		"it is not loaded yet": {
			want: []string{
				"Accepted=Unknown Pending: this generation has not been compiled yet",
				"Registered=False Pending: this generation has not been compiled yet",
				"Ready=False Pending: this generation has not been compiled yet",
				"Reconciling=True Pending: this generation has not been compiled yet",
			},
		},
		"it does not compile": {
			observed: observation{loaded: true, problems: "spec.validations[0].expression: no"},
			want: []string{
				"Accepted=False Invalid: spec.validations[0].expression: no",
				"Registered=False Invalid: a policy that is not accepted is not registered",
				"Ready=False Invalid: spec.validations[0].expression: no",
				"Stalled=True Invalid: change the policy: see the condition Accepted",
			},
		},
		"it does not compile any more": {
			observed: observation{loaded: true, problems: "no", planned: true, registered: true},
			want: []string{
				"Accepted=False Invalid: no",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g; its requests are answered by failurePolicy Fail until it is corrected",
				"Ready=False Invalid: no",
				"Stalled=True Invalid: change the policy: see the condition Accepted",
			},
		},
		"it is registered, and a replica has not loaded it": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, notReady: "waiting for replica b, which has not loaded it yet"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False WaitingForReplicas: waiting for replica b, which has not loaded it yet",
				"Ready=False WaitingForReplicas: waiting for replica b, which has not loaded it yet",
				"Reconciling=True WaitingForReplicas: waiting for replica b, which has not loaded it yet",
			},
		},
		"a replica does not know its fields, and an earlier generation is enforced": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, enforced: 1, skew: "waiting for replica b, which does not know spec.x"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False WaitingForReplicas: waiting for replica b, which does not know spec.x: upgrade all replicas, or remove the field; until then generation 1 stays enforced",
				"Ready=False WaitingForReplicas: waiting for replica b, which does not know spec.x: upgrade all replicas, or remove the field; until then generation 1 stays enforced",
				"Reconciling=True WaitingForReplicas: waiting for replica b, which does not know spec.x: upgrade all replicas, or remove the field; until then generation 1 stays enforced",
			},
		},
		"a replica does not know its fields, and it was never enforced": {
			observed: observation{loaded: true, accepted: true, skew: "waiting for replica b, which does not know spec.x"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False WaitingForReplicas: waiting for replica b, which does not know spec.x: upgrade all replicas, or remove the field",
				"Ready=False WaitingForReplicas: waiting for replica b, which does not know spec.x: upgrade all replicas, or remove the field",
				"Reconciling=True WaitingForReplicas: waiting for replica b, which does not know spec.x: upgrade all replicas, or remove the field",
			},
		},
		"its expressions have warnings": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, advice: []string{"a: 1", "b: 2", "c: 3", "d: 4"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles, with warnings: a: 1; b: 2; c: 3; and 1 more: see status.typeChecking",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True Enforced: enforced: requests that fail a validation are denied",
			},
		},
		"its rules match no request": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, rules: unmatched{all: true, warnings: []string{"a: no pod"}}, advice: []string{"a: no pod"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles, with warnings: a: no pod",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True Enforced: no request matches the policy: a: no pod",
			},
		},
		"another client keeps changing its configuration": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, conflict: "other keeps changing it"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True Conflict: enforced: requests that fail a validation are denied; other keeps changing it",
			},
		},
		"its backend has no bundle, and it was enforced before": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, enforced: 2, missing: missingDependency{reason: "NotFound", message: "no such Secret"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False Pending: waiting for the CA bundle of the backend: see the condition CAReady; until then generation 2 stays enforced",
				"Ready=False NotFound: no such Secret",
				"Reconciling=True NotFound: no such Secret",
			},
		},
		"its backend has no bundle, and the previous generation is unknown": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, enforced: 2, placeholder: true, missing: missingDependency{reason: "NotFound", message: "no such Secret"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False Pending: waiting for the CA bundle of the backend: see the condition CAReady; until then its requests are answered by failurePolicy Fail",
				"Ready=False NotFound: no such Secret",
				"Reconciling=True NotFound: no such Secret",
			},
		},
		"its match conditions are not delegated": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, undelegated: "undeclared reference to 'sets'"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g; " +
					"Ostiary evaluates its match conditions, because the API server rejects them: undeclared reference to 'sets'",
				"Ready=True Enforced: enforced: requests that fail a validation are denied",
			},
		},
		"API servers do not reach it": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, reachable: &metav1.Condition{Status: "False", Reason: "TimedOut", Message: "no"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Reachable=False TimedOut: no",
				"Ready=False TimedOut: no",
				"Reconciling=True TimedOut: no",
			},
		},
		"the CA bundle of its backend is outdated": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true,
				reachable: &metav1.Condition{Status: "True", Reason: "Reachable", Message: "yes"}, caReady: &metav1.Condition{Status: "False", Reason: "NotFound", Message: "gone"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Reachable=True Reachable: yes",
				"CAReady=False NotFound: gone",
				"Ready=True Enforced: enforced: requests that fail a validation are denied",
			},
		},
		"the API server rejects it, and a dependency is missing": {
			observed: observation{loaded: true, accepted: true, planned: true, rejection: "no such rule", enforced: 2, missing: missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False Refused: the API server rejects the registration: no such rule; generation 2 stays enforced",
				"Ready=False Refused: the API server rejects the registration: no such rule; generation 2 stays enforced",
				"Stalled=True Refused: change the policy: see the condition Registered",
			},
		},
		"its failurePolicy is not Fail yet": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, heldAtIgnore: true, conflict: "other keeps changing it"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=False Conflict: waiting for the webhook to be registered with failurePolicy Fail instead of Ignore; other keeps changing it",
				"Reconciling=True Pending: waiting for the webhook to be registered with failurePolicy Fail instead of Ignore",
			},
		},
		"there is no certificate": {
			observed: observation{loaded: true, accepted: true, planned: true, noCertificate: true, notRegistered: "does not exist yet"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False NoCertificate: waiting for the serving certificate",
				"Ready=False NoCertificate: waiting for the serving certificate",
				"Reconciling=True NoCertificate: waiting for the serving certificate",
			},
		},
		"it is not registered": {
			observed: observation{loaded: true, accepted: true, planned: true, notRegistered: "ValidatingWebhookConfiguration x does not exist yet"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False Pending: ValidatingWebhookConfiguration x does not exist yet",
				"Ready=False Pending: ValidatingWebhookConfiguration x does not exist yet",
				"Reconciling=True Pending: ValidatingWebhookConfiguration x does not exist yet",
			},
		},
		"a dependency is missing, registered": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, missing: missingDependency{reason: ReasonParamsNotReady, message: "none are there"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=False ParamsNotReady: none are there",
				"Reconciling=True ParamsNotReady: none are there",
			},
		},
		"params do not exist": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true, absentParams: "every matching request is denied"},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True ParamsNotFound: every matching request is denied",
			},
		},
		"suspended": {
			observed: observation{
				loaded: true, accepted: true, planned: true, registered: true, suspended: "suspended until noon", absentParams: "no params",
			},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=False Suspended: suspended until noon",
				"Reconciling=True Suspended: suspended until noon",
			},
		},
		"suspended, and it does not compile": {
			observed: observation{loaded: true, problems: "no", suspended: "suspended until noon"},
			want: []string{
				"Accepted=False Invalid: no",
				"Registered=False Invalid: a policy that is not accepted is not registered",
				"Ready=False Invalid: no",
				"Stalled=True Invalid: change the policy: see the condition Accepted",
			},
		},
		"a dependency is missing, not registered": {
			observed: observation{loaded: true, accepted: true, planned: true, notRegistered: "x does not exist yet", missing: missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=False Pending: x does not exist yet",
				"Ready=False SchemaNotReady: no schema",
				"Reconciling=True SchemaNotReady: no schema",
			},
		},
		"a dependency is missing, and it does not compile": {
			observed: observation{loaded: true, problems: "no", missing: missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}},
			want: []string{
				"Accepted=False Invalid: no",
				"Registered=False Invalid: a policy that is not accepted is not registered",
				"Ready=False Invalid: no",
				"Stalled=True Invalid: change the policy: see the condition Accepted",
			},
		},
		"it is enforced": {
			observed: observation{loaded: true, accepted: true, planned: true, registered: true},
			want: []string{
				"Accepted=True Accepted: every expression compiles",
				"Registered=True Registered: registered in ValidatingWebhookConfiguration ostiary-validate-g",
				"Ready=True Enforced: enforced: requests that fail a validation are denied",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var list []metav1.Condition
			for _, c := range conditions(newPolicy(), &tc.observed, refs) {
				setCondition(&list, c, 3, now)
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
	p.Status = observe(p, nil, inputs{}, &stages{}, earlier)
	again := observe(p, nil, inputs{}, &stages{}, now)
	if diff := cmp.Diff(p.Status, again); diff != "" {
		t.Errorf("a status that did not change was changed (-before +after):\n%s", diff)
	}
}

func TestObserveRemovesReconciling(t *testing.T) {
	p := newPolicy()
	p.Status = observe(p, nil, inputs{}, &stages{}, earlier)
	for _, c := range conditions(p, &observation{loaded: true, accepted: true, planned: true, registered: true}, nil) {
		setCondition(&p.Status.Conditions, c, 3, now)
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
		"previewing": {
			mutations: mutations,
			bindings: []v1alpha1.Binding{{
				Name: "b", MutationAction: v1alpha1.MutationActionPreview, ValidationActions: warn[0].ValidationActions,
			}},
			want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Preview,Warn,Audit", FailurePolicy: "Ignore"},
		},
		"previewing and denying": {
			mutations: mutations, bindings: []v1alpha1.Binding{{Name: "b", MutationAction: v1alpha1.MutationActionPreview}},
			want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Preview,Deny", FailurePolicy: "Fail"},
		},
		"mutating, never denying": {
			mutations: mutations, bindings: warn,
			want: v1alpha1.WebhookPolicyStatus{ObservedGeneration: 3, Actions: "Mutate,Warn,Audit", FailurePolicy: "Fail"},
		},
	}
	annotating := newPolicy()
	annotating.Spec.Validations = nil
	annotating.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: "'v'"}}
	if got := observe(annotating, nil, inputs{}, &stages{}, now); got.Actions != "Annotate" {
		t.Errorf("actions of a policy with audit annotations alone: %q, want Annotate", got.Actions)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			p.Spec.Bindings, p.Spec.Mutations = tc.bindings, tc.mutations
			got := observe(p, nil, inputs{}, &stages{}, now)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(v1alpha1.WebhookPolicyStatus{}, "Conditions")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnforcedMessage(t *testing.T) {
	mutations := []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch}}
	tests := map[string]struct {
		change func(*v1alpha1.WebhookPolicySpec)
		want   string
	}{
		"validates": {
			change: func(*v1alpha1.WebhookPolicySpec) {},
			want:   "enforced: requests that fail a validation are denied",
		},
		"only annotates": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Validations, s.AuditAnnotations = nil, []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'b'"}}
			},
			want: "enforced: matching requests are annotated in the audit log",
		},
		"audits and warns": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Bindings = []v1alpha1.Binding{{Name: "b", ValidationActions: []admissionregistrationv1.ValidationAction{"Audit", "Warn"}}}
			},
			want: "enforced: requests that fail a validation get a warning and are recorded in the audit log",
		},
		"mutates": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.Mutations, s.Validations = mutations, nil },
			want:   "enforced: matching requests are mutated",
		},
		"does both": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.Mutations = mutations },
			want:   "enforced: matching requests are mutated; requests that then fail a validation are denied",
		},
		"previews": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Mutations, s.Validations = mutations, nil
				s.Bindings = []v1alpha1.Binding{{Name: "b", MutationAction: v1alpha1.MutationActionPreview}}
			},
			want: "enforced: what mutations would change is only recorded",
		},
		"previews and validates": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Mutations, s.Bindings = mutations, []v1alpha1.Binding{{Name: "b", MutationAction: v1alpha1.MutationActionPreview}}
			},
			want: "enforced: what mutations would change is only recorded; requests that fail a validation are denied",
		},
		"mutates and annotates": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Mutations, s.Validations, s.AuditAnnotations = mutations, nil, []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'b'"}}
			},
			want: "enforced: matching requests are mutated and annotated in the audit log",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			tc.change(&p.Spec)
			if got := enforcedMessage(p); got != tc.want {
				t.Errorf("enforcedMessage() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var list []metav1.Condition
	long := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "R", Message: strings.Repeat("é", maxMessage)}
	setCondition(&list, long, 1, now)
	if got := len(list[0].Message); got > 32<<10 {
		t.Errorf("a message of %d bytes, which the API server refuses", got)
	}
	if got := eventMessage(strings.Repeat("é", truncate.EventMessage)); len(got) > 1<<10 || !strings.HasSuffix(got, "é...") {
		t.Errorf("an event of %d bytes that ends with %q", len(got), got[len(got)-8:])
	}
}

// A new leader has read policies later than other replicas report, and keeps a
// generation registered that was so before.
func TestReplicasAreAwaitedOnce(t *testing.T) {
	waits := &observation{loaded: true, accepted: true, planned: true, registered: true, notReady: "waiting for replica b"}
	tests := map[string]struct {
		status     metav1.ConditionStatus
		generation int64
		want       metav1.ConditionStatus
	}{
		"this generation was registered":     {metav1.ConditionTrue, 3, metav1.ConditionTrue},
		"the previous one was registered":    {metav1.ConditionTrue, 2, metav1.ConditionFalse},
		"this generation was not registered": {metav1.ConditionFalse, 3, metav1.ConditionFalse},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRegistered, Status: tc.status, ObservedGeneration: tc.generation}}
			got := find(v1alpha1.WebhookPolicyStatus{Conditions: conditions(p, waits, nil)}, v1alpha1.ConditionRegistered)
			if got.Status != tc.want {
				t.Errorf("condition %+v, want %s", got, tc.want)
			}
		})
	}
}
