package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// TestSuspension: a suspended policy has no effect until its end, in either phase, and others have theirs.
func TestSuspension(t *testing.T) {
	const (
		denies  = "validations: [{expression: 'false', message: refused}]\n"
		fails   = "validations: [{expression: \"object.metadata.labels['missing'] == ''\"}]\n"
		changes = "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: " +
			"'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}]\n"
	)
	until := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		spec          string
		mutating      bool
		now           time.Time
		others        bool // a second policy, which is not suspended, denies
		wantAllowed   bool
		wantPatch     bool
		wantDecision  Decision
		wantAnnotated string
	}{
		"before the end": {
			spec: denies, now: until.Add(-time.Nanosecond), wantAllowed: true, wantDecision: DecisionSuspended, wantAnnotated: "p",
		},
		"the longest": {
			spec: denies, now: until.Add(-v1alpha1.MaxSuspension), wantAllowed: true, wantDecision: DecisionSuspended, wantAnnotated: "p",
		},
		"too long":      {spec: denies, now: until.Add(-v1alpha1.MaxSuspension - time.Nanosecond), wantDecision: DecisionDeny},
		"at the end":    {spec: denies, now: until, wantDecision: DecisionDeny},
		"after the end": {spec: denies, now: until.Add(time.Hour), wantDecision: DecisionDeny},
		"an error":      {spec: fails, now: until.Add(-time.Hour), wantAllowed: true, wantDecision: DecisionSuspended, wantAnnotated: "p"},
		"another policy denies": {
			spec: denies, now: until.Add(-time.Hour), others: true, wantDecision: DecisionSuspended, wantAnnotated: "p",
		},
		"a mutation": {
			spec: changes, mutating: true, now: until.Add(-time.Hour), wantAllowed: true, wantDecision: DecisionSuspended, wantAnnotated: "p",
		},
		"a mutation at the end": {
			spec: changes, mutating: true, now: until, wantAllowed: true, wantPatch: true, wantDecision: DecisionMutate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			suspended := policyFrom(t, "p", tt.spec)
			suspended.Annotations = map[string]string{v1alpha1.AnnotationSuspendedUntil: until.Format(time.RFC3339)}
			all := []*Compiled{mustCompile(t, sharedCompiler, suspended)}
			if tt.others {
				all = append(all, mustCompile(t, sharedCompiler, policyFrom(t, "q", denies)))
			}
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Observe, host.Now = observeInto(decisions), func() time.Time { return tt.now }
			run := evaluate
			if tt.mutating {
				run = mutate
			}
			resp := run(t, NewGroup(all), podInput(t, admission.Create).review(t), host)
			got := []any{resp.Allowed, len(resp.Patch) > 0, decisions["p"], resp.AuditAnnotations["suspended"]}
			want := []any{tt.wantAllowed, tt.wantPatch, tt.wantDecision, tt.wantAnnotated}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("allowed, patch, decision, annotation (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAuditOfSuspendedPolicies finds what a suspended policy would deny.
func TestAuditOfSuspendedPolicies(t *testing.T) {
	p := policyFrom(t, "p", "validations: [{expression: 'false', message: refused}]\n")
	p.Annotations = map[string]string{v1alpha1.AnnotationSuspendedUntil: time.Now().Add(time.Hour).Format(time.RFC3339)}
	auditor := NewAuditor(p, mustCompile(t, sharedCompiler, p))
	got := auditor.Evaluate(t.Context(), podInput(t, admission.Create).review(t), testWorld.host())
	if got.Decision != DecisionDeny || !got.Denied {
		t.Errorf("got %+v, want a denial", got)
	}
}
