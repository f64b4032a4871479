package status

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// served are resources that count how often they are read.
type served struct {
	lists   map[schema.GroupVersion][]metav1.APIResource
	version uint64
	reads   int
}

func (s *served) Served() map[schema.GroupVersion][]metav1.APIResource {
	s.reads++
	return s.lists
}
func (s *served) Version() uint64                           { return s.version }
func (s *served) Subscribe(context.Context) <-chan struct{} { return nil }

func TestUnmatchedRules(t *testing.T) {
	core := schema.GroupVersion{Version: "v1"}
	s := &served{lists: map[schema.GroupVersion][]metav1.APIResource{core: {{Name: "nodes", Kind: "Node"}}}, version: 1}
	p := newPolicy()
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		},
	}}}
	loaded := true
	rules := unmatchedRules{resources: s, isLoaded: func(types.UID) bool { return loaded }}
	check := func(wantAll bool, wantReads int) {
		t.Helper()
		got := rules.find(p)
		if got.all != wantAll || (len(got.warnings) > 0) != wantAll {
			t.Errorf("got %+v, want all: %t", got, wantAll)
		}
		if s.reads != wantReads {
			t.Errorf("the resources were read %d times, want %d", s.reads, wantReads)
		}
	}
	check(true, 1)
	check(true, 1)
	p.Generation++
	check(true, 2)
	s.lists, s.version = map[schema.GroupVersion][]metav1.APIResource{core: {{Name: "pods", Kind: "Pod"}}}, 2
	check(false, 3)
	rules.pruneAt = 0
	rules.prune()
	check(false, 3)
	loaded, rules.pruneAt = false, 0
	rules.prune()
	check(false, 4)
}

// TestResultsForDeletedPoliciesAreRemoved checks that the results that are kept do not grow with the number of policies
// that have existed.
func TestResultsForDeletedPoliciesAreRemoved(t *testing.T) {
	const loaded, created = 100, 10_000
	isLoaded := func(uid types.UID) bool {
		n, err := strconv.Atoi(string(uid))
		return err == nil && n < loaded
	}
	rules := unmatchedRules{resources: &served{}, isLoaded: isLoaded}
	for i := range created {
		p := newPolicy()
		p.UID = types.UID(strconv.Itoa(i))
		rules.find(p)
		if got, most := len(rules.known), 2*loaded+minPrune; got > most {
			t.Fatalf("%d results are kept for %d policies, want at most %d", got, loaded, most)
		}
	}
	for i := range loaded {
		if _, ok := rules.known[types.UID(strconv.Itoa(i))]; !ok {
			t.Errorf("the result of policy %d is gone, although the policy is loaded", i)
		}
	}
}

func TestAdvice(t *testing.T) {
	rules := unmatched{warnings: []string{"a: 1"}}
	found := &admissionregistrationv1.TypeChecking{
		ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{
			{FieldRef: "b", Warning: "2"}, {FieldRef: "c", Warning: "3"},
		},
	}
	if diff := cmp.Diff([]string{"a: 1", "b: 2", "c: 3"}, warningsOf(rules, found)); diff != "" {
		t.Errorf("advice (-want +got):\n%s", diff)
	}
	if got := warningsOf(unmatched{}, nil); got != nil {
		t.Errorf("advice without warnings: %q", got)
	}
}
