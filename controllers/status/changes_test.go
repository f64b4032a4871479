package status

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
)

func TestChangeDetector(t *testing.T) {
	entry := func(name string, generation int64, planned bool) *policies.Entry {
		p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation}}
		e := &policies.Entry{Generation: &policies.Generation{Policy: p}}
		if planned {
			e.Choice = policies.ChooseLatest
		}
		return e
	}
	stateOf := func(registrable bool, entries ...*policies.Entry) *policies.State {
		s := &policies.State{Entries: map[types.UID]*policies.Entry{}, Registrable: registrable}
		for _, e := range entries {
			s.Entries[e.Policy.UID] = e
		}
		return s
	}
	atVersion := func(e *policies.Entry, version string) *policies.Entry {
		e.Policy.ResourceVersion = version
		return e
	}
	everything := func(*v1alpha1.WebhookPolicy) bool { return true }
	onlyB := func(p *v1alpha1.WebhookPolicy) bool { return p.Name == "b" }
	var missing, checked string
	var violations int64
	inputsOf := func(p *v1alpha1.WebhookPolicy) inputs {
		var in inputs
		if p.Name == missing {
			in.missing = missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}
		}
		if p.Name == checked {
			in.types = &admissionregistrationv1.TypeChecking{}
		}
		if p.Name == "a" {
			in.audit.Status = &v1alpha1.AuditStatus{Violations: ptr.To(violations)}
		}
		return in
	}
	var d changeDetector
	for _, step := range []struct {
		name             string
		state            *policies.State
		missing, checked string
		violations       int64
		concerns         func(*v1alpha1.WebhookPolicy) bool // nil for all policies
		want             []string
		wantAudited      []string
	}{
		{name: "all, the first time", state: stateOf(false, entry("a", 1, true), entry("b", 1, true)), want: []string{"a", "b"}},
		{name: "no change", state: stateOf(false, entry("a", 1, true), entry("b", 1, true))},
		{name: "a generation", state: stateOf(false, entry("a", 2, true), entry("b", 1, true)), want: []string{"a"}},
		{
			name:     "a certificate for all, while a change concerns one",
			state:    stateOf(true, entry("a", 2, true), entry("b", 1, true)),
			concerns: onlyB,
			want:     []string{"b"},
		},
		{name: "the certificate for the other", state: stateOf(true, entry("a", 2, true), entry("b", 1, true)), want: []string{"a"}},
		{name: "no certificate for all", state: stateOf(false, entry("a", 2, true), entry("b", 1, true)), want: []string{"a", "b"}},
		{name: "a certificate for all", state: stateOf(true, entry("a", 2, true), entry("b", 1, true)), want: []string{"a", "b"}},
		{name: "another plan", state: stateOf(true, entry("a", 2, true), entry("b", 1, false)), want: []string{"b"}},
		{name: "a schema is missing", state: stateOf(true, entry("a", 2, true), entry("b", 1, false)), missing: "a", want: []string{"a"}},
		{
			name:    "types are checked, nothing is missing",
			state:   stateOf(true, entry("a", 2, true), entry("b", 1, false)),
			checked: "b",
			want:    []string{"a", "b"},
		},
		{
			name:    "one is deleted, one is created",
			state:   stateOf(true, entry("c", 1, true), entry("b", 1, false)),
			checked: "b",
			want:    []string{"c"},
		},
		{
			name:    "one is created again",
			state:   stateOf(true, entry("a", 2, true), entry("c", 1, true), entry("b", 1, false)),
			checked: "b",
			want:    []string{"a"},
		},
		{
			name:        "the audit finds violations",
			state:       stateOf(true, entry("a", 2, true), entry("b", 1, false)),
			checked:     "b",
			violations:  1,
			wantAudited: []string{"a"},
		},
		{
			name:       "the audit finds others, and a generation",
			state:      stateOf(true, entry("a", 3, true), entry("b", 1, false)),
			checked:    "b",
			violations: 2,
			want:       []string{"a"},
		},
		{
			name:       "another step of a rollout",
			state:      stateOf(true, atVersion(entry("a", 3, true), "7"), entry("b", 1, false)),
			checked:    "b",
			violations: 2,
			want:       []string{"a"},
		},
	} {
		missing, checked, violations = step.missing, step.checked, step.violations
		if step.concerns == nil {
			step.concerns = everything
		}
		got, audited := d.changed(step.state, step.concerns, inputsOf)
		slices.Sort(got)
		if diff := cmp.Diff([][]string{step.want, step.wantAudited}, [][]string{got, audited}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestAuditDelay(t *testing.T) {
	tests := map[string]struct {
		policy, policies int
		want             time.Duration
	}{
		"the only one":   {0, 1, 0},
		"few":            {59, 60, 29500 * time.Millisecond},
		"many":           {1199, 1200, 1199 * auditInterval},
		"more than many": {9999, 10000, 9999 * 60 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := auditDelay(tc.policy, tc.policies); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A result of the audit that has changed for one policy is written in 2 s, which
// TestCorrectedObjectsAreReadInTime of controllers/audit relies on.
func TestResultsAreWrittenInTime(t *testing.T) {
	if got := maxPause + auditDelay(0, 1); got > 2*time.Second {
		t.Errorf("a result of the audit is written in %s", got)
	}
}
