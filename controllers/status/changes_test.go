package status

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
)

func TestOnlyWhatIsNewIsLookedAtAgain(t *testing.T) {
	entry := func(name string, generation int64, planned bool) *policies.Entry {
		return &policies.Entry{Planned: planned, Policy: &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation}}}
	}
	stateOf := func(registrable bool, entries ...*policies.Entry) *policies.State {
		s := &policies.State{Entries: map[types.UID]*policies.Entry{}, Registrable: registrable}
		for _, e := range entries {
			s.Entries[e.Policy.UID] = e
		}
		return s
	}
	var lacking, checked string
	beside := func(p *v1alpha1.WebhookPolicy) inputs {
		var b inputs
		if p.Name == lacking {
			b.missing = missingDependency{reason: ReasonSchemaNotReady, message: "no schema"}
		}
		if p.Name == checked {
			b.types = &admissionregistrationv1.TypeChecking{}
		}
		return b
	}
	var n changeDetector
	for _, step := range []struct {
		what             string
		state            *policies.State
		lacking, checked string
		want             []string
	}{
		{what: "all, the first time", state: stateOf(false, entry("a", 1, true), entry("b", 1, true)), want: []string{"a", "b"}},
		{what: "nothing new", state: stateOf(false, entry("a", 1, true), entry("b", 1, true))},
		{what: "a generation", state: stateOf(false, entry("a", 2, true), entry("b", 1, true)), want: []string{"a"}},
		{what: "a certificate for all", state: stateOf(true, entry("a", 2, true), entry("b", 1, true)), want: []string{"a", "b"}},
		{what: "another plan", state: stateOf(true, entry("a", 2, true), entry("b", 1, false)), want: []string{"b"}},
		{what: "something lacks", state: stateOf(true, entry("a", 2, true), entry("b", 1, false)), lacking: "a", want: []string{"a"}},
		{what: "types are checked, nothing lacks", state: stateOf(true, entry("a", 2, true), entry("b", 1, false)), checked: "b", want: []string{"a", "b"}},
		{what: "one goes, one comes", state: stateOf(true, entry("c", 1, true), entry("b", 1, false)), checked: "b", want: []string{"c"}},
		{what: "one comes again", state: stateOf(true, entry("a", 2, true), entry("c", 1, true), entry("b", 1, false)), checked: "b", want: []string{"a"}},
	} {
		lacking, checked = step.lacking, step.checked
		got := n.changed(step.state, beside)
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}
