package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

func newLoader(t testing.TB) *Loader {
	t.Helper()
	return &Loader{
		Store:    &Store{Host: policy.Environment{Now: time.Now}},
		Compiler: compilerOf(policy.NewCompiler()),
		Metrics:  metrics.NewPolicies(prometheus.NewRegistry()),
		Endpoint: registration.Endpoint{URL: "https://127.0.0.1:1"},
		Bundle:   func() []byte { return []byte("bundle") },
	}
}

func compilerOf(c *policy.Compiler) func() *policy.Compiler {
	return func() *policy.Compiler { return c }
}

func newPolicy(name string, generation int64, expression string) v1alpha1.WebhookPolicy {
	return v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: generation},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []v1alpha1.Validation{{Expression: expression}},
		},
	}
}

func withTimeout(p v1alpha1.WebhookPolicy, seconds int32) v1alpha1.WebhookPolicy {
	p.Spec.TimeoutSeconds = &seconds
	return p
}

// load loads policies beside the configurations that an earlier state planned,
// and makes the result current.
func load(l *Loader, before *State, policies ...v1alpha1.WebhookPolicy) *State {
	var observed []registration.Configuration
	if before != nil {
		for _, g := range before.Plan.Groups {
			observed = append(observed, g.Configuration)
		}
	}
	return publish(l, pointersTo(policies), observed)
}

// publish loads policies beside configurations, and makes the result current.
func publish(l *Loader, policies []*v1alpha1.WebhookPolicy, configurations []registration.Configuration) *State {
	state := stateFor(l, policies, configurations)
	l.Refusals.retain(state.Entries)
	l.count(state)
	l.Store.publish(state)
	return state
}

func stateFor(l *Loader, policies []*v1alpha1.WebhookPolicy, configurations []registration.Configuration) *State {
	seen := l.observation(policies, configurations, l.peers(context.Background()))
	return l.plan(seen, l.decide(logr.Discard(), seen))
}

func pointersTo(policies []v1alpha1.WebhookPolicy) []*v1alpha1.WebhookPolicy {
	out := make([]*v1alpha1.WebhookPolicy, len(policies))
	for i := range policies {
		out[i] = &policies[i]
	}
	return out
}

// answering lists, for each call group, the policies that answer for it.
func answering(s *State, groups ...registration.GroupKey) [][]string {
	var out [][]string
	for _, key := range groups {
		if g := s.groups[key]; g != nil {
			out = append(out, g.Names())
		}
	}
	return out
}

func TestCompilesEachGenerationOnce(t *testing.T) {
	l := newLoader(t)
	first := load(l, nil, newPolicy("a", 1, "true"), newPolicy("b", 1, "true"))
	second := load(l, first, newPolicy("a", 1, "true"), newPolicy("b", 2, "false"))
	if first.Entries["uid-a"].Compiled != second.Entries["uid-a"].Compiled {
		t.Error("an unchanged policy was compiled again")
	}
	if first.Entries["uid-b"].Compiled == second.Entries["uid-b"].Compiled {
		t.Error("a changed policy was not compiled")
	}
}

func TestCompilesAgainForAnotherEngine(t *testing.T) {
	l := newLoader(t)
	first := load(l, nil, newPolicy("a", 1, "true"))
	l.Compiler = compilerOf(policy.NewCompilerFor(policy.OldestEngine))
	second := load(l, first, newPolicy("a", 1, "true"))
	if first.Entries["uid-a"].Compiled == second.Entries["uid-a"].Compiled {
		t.Error("the policy was not compiled for the other engine")
	}
	if third := load(l, second, newPolicy("a", 1, "true")); second.Entries["uid-a"].Compiled != third.Entries["uid-a"].Compiled {
		t.Error("an unchanged policy was compiled again")
	}
}

func TestCountOfRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		policies []v1alpha1.WebhookPolicy
		rejects  string // the policy that the API server rejects

		wantAccepted, wantRefused int
	}{
		"valid": {policies: []v1alpha1.WebhookPolicy{newPolicy("a", 1, "true"), newPolicy("b", 1, "true")}, wantAccepted: 2},
		"invalid": {
			policies:     []v1alpha1.WebhookPolicy{newPolicy("a", 1, "true"), newPolicy("b", 1, "1 +")},
			wantAccepted: 1,
			wantRefused:  1,
		},
		"rejected by the API server": {
			policies:     []v1alpha1.WebhookPolicy{newPolicy("a", 1, "true"), newPolicy("b", 1, "true")},
			rejects:      "b",
			wantAccepted: 1,
			wantRefused:  1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			l := newLoader(t)
			l.Metrics, l.Refusals = metrics.NewPolicies(registry), &Refusals{}
			for _, e := range load(l, nil, tc.policies...).Named([]string{tc.rejects}) {
				l.Refusals.Add(e, "no")
			}
			load(l, nil, tc.policies...)
			want := fmt.Sprintf("# HELP ostiary_policies Policies in this replica, by state: accepted, or refused (invalid, or the API server rejects the registration).\n"+
				"# TYPE ostiary_policies gauge\nostiary_policies{state=\"accepted\"} %d\nostiary_policies{state=\"refused\"} %d\n", tc.wantAccepted, tc.wantRefused)
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "ostiary_policies"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBrokenPolicies(t *testing.T) {
	tests := map[string]struct {
		before, after []v1alpha1.WebhookPolicy
		wantMembers   []string
	}{
		"one that was never registered is omitted, its neighbour is not": {
			after:       []v1alpha1.WebhookPolicy{newPolicy("good", 1, "true"), newPolicy("bad", 1, "1 +")},
			wantMembers: []string{"good"},
		},
		"one that was registered stays": {
			before:      []v1alpha1.WebhookPolicy{newPolicy("good", 1, "true"), newPolicy("bad", 1, "true")},
			after:       []v1alpha1.WebhookPolicy{newPolicy("good", 1, "true"), newPolicy("bad", 2, "1 +")},
			wantMembers: []string{"bad", "good"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLoader(t)
			var before *State
			if tc.before != nil {
				before = load(l, nil, tc.before...)
				l.Store = &Store{} // the replica is a new one: only the API server remembers
			}
			state := load(l, before, tc.after...)
			if diff := cmp.Diff(tc.wantMembers, state.Plan.Groups[0].Members); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
			if state.Entries["uid-bad"].Accepted() {
				t.Error("the broken policy is accepted")
			}
		})
	}
}

// mutating makes a policy mutate, and validate still.
func mutating(p v1alpha1.WebhookPolicy) v1alpha1.WebhookPolicy {
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/metadata/labels", value: {"mended": "yes"}}]`},
	}}
	return p
}

func groupOf(s *State, phase registration.Phase, name string) registration.GroupKey {
	return registration.GroupKey{Phase: phase, Name: s.Plan.GroupsOf(phase, name)[0]}
}

func TestMovingPolicyIsAnsweredForInBothGroups(t *testing.T) {
	for _, phase := range []registration.Phase{registration.PhaseMutate, registration.PhaseValidate} {
		t.Run(string(phase), func(t *testing.T) {
			l := newLoader(t)
			stays, moves, moved := mutating(newPolicy("stays", 1, "true")), mutating(newPolicy("moves", 1,
				"true")), withTimeout(mutating(newPolicy("moves", 2, "true")), 7)
			before := load(l, nil, stays, moves)
			after := load(l, before, stays, moved)
			from, to := groupOf(before, phase, "moves"), groupOf(after, phase, "moves")
			want := [][]string{{"moves", "stays"}, {"moves"}}
			if diff := cmp.Diff(want, answering(after, from, to)); diff != "" {
				t.Errorf("who answers while it moves (-want +got):\n%s", diff)
			}
			settled := load(l, after, stays, moved)
			want = [][]string{{"stays"}, {"moves"}}
			if diff := cmp.Diff(want, answering(settled, from, to)); diff != "" {
				t.Errorf("who answers when it has moved (-want +got):\n%s", diff)
			}
		})
	}
}

// deduced has no schemas and needs none for JSON patches.
type deduced struct{}

func (deduced) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	return managedfields.NewDeducedTypeConverter()
}

func TestEachPhaseIsAnsweredByItsOwnPart(t *testing.T) {
	l := newLoader(t)
	l.Store.Host.TypeConverters = deduced{}
	l.Store.Host.Objects = admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
	state := load(l, nil, mutating(newPolicy("p", 1, "false")))
	request := func() *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "default", Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default"}}`)},
		}
	}
	mutated, err := l.Store.Evaluate(context.Background(), groupOf(state, registration.PhaseMutate, "p"), request())
	if err != nil || !mutated.Allowed || !strings.Contains(string(mutated.Patch), "mended") {
		t.Errorf("mutating: %+v, %v; want a patch, and no validation", mutated, err)
	}
	validated, err := l.Store.Evaluate(context.Background(), groupOf(state, registration.PhaseValidate, "p"), request())
	if err != nil || validated.Allowed || validated.Patch != nil {
		t.Errorf("validating: %+v, %v; want a denial, and no patch", validated, err)
	}
	wrong := registration.GroupKey{Phase: registration.PhaseValidate, Name: groupOf(state, registration.PhaseMutate, "p").Name}
	var notLoaded *NotLoadedError
	if got, err := l.Store.Evaluate(context.Background(), wrong, request()); !errors.As(err, &notLoaded) || got != nil {
		t.Errorf("for a group of the other phase Evaluate() = %+v, %v", got, err)
	}
}

func TestDeletedPolicyFreesItsGroups(t *testing.T) {
	l := newLoader(t)
	before := load(l, nil, mutating(newPolicy("p", 1, "false")))
	load(l, before)
	request := &admissionv1.AdmissionRequest{
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Operation: admissionv1.Create,
	}
	for _, phase := range []registration.Phase{registration.PhaseMutate, registration.PhaseValidate} {
		got, err := l.Store.Evaluate(context.Background(), groupOf(before, phase, "p"), request)
		if err != nil || !got.Allowed {
			t.Errorf("%s: Evaluate() = %+v, %v; want the request to pass while the configuration is still there", phase, got, err)
		}
	}
}

func TestNotLoadedIsAnErrorAndNeverAllowed(t *testing.T) {
	l := newLoader(t)
	var notLoaded *NotLoadedError
	if got, err := l.Store.Evaluate(context.Background(), registration.GroupKey{
		Phase: registration.PhaseValidate,
		Name:  "g",
	}, &admissionv1.AdmissionRequest{}); !errors.As(err, &notLoaded) || got != nil {
		t.Errorf("before the first load Evaluate() = %+v, %v", got, err)
	}
	if l.Store.Loaded() == nil {
		t.Error("Loaded() = nil before the first load")
	}
	load(l, nil, newPolicy("p", 1, "true"))
	if got, err := l.Store.Evaluate(context.Background(), registration.GroupKey{
		Phase: registration.PhaseMutate,
		Name:  "unknown",
	}, &admissionv1.AdmissionRequest{}); !errors.As(err, &notLoaded) || got != nil {
		t.Errorf("for an unknown group Evaluate() = %+v, %v", got, err)
	}
	if err := l.Store.Loaded(); err != nil {
		t.Errorf("Loaded() = %v after the first load", err)
	}
}

func TestNothingIsRegistrableWithoutABundle(t *testing.T) {
	l := newLoader(t)
	l.Bundle = func() []byte { return nil }
	if state := load(l, nil, newPolicy("p", 1, "true")); state.Registrable {
		t.Error("registrable without a trust bundle")
	}
}

func TestSubscribersHearOfEachState(t *testing.T) {
	l := newLoader(t)
	heard := l.Store.Subscribe(t.Context())
	for range 2 {
		load(l, nil)
		<-heard
	}
}

// With thousands of policies, most of a load would be spent on the groups that did not change.
func TestUnchangedGroupsAreKept(t *testing.T) {
	l := newLoader(t)
	other := withTimeout(newPolicy("b", 1, "true"), 3)
	first := load(l, nil, newPolicy("a", 1, "true"), other)
	second := load(l, first, newPolicy("a", 2, "false"), other)
	keys := map[string]registration.GroupKey{}
	for i := range second.Plan.Groups {
		keys[strings.Join(second.Plan.Groups[i].Members, ",")] = second.Plan.Groups[i].Key()
	}
	if changed := keys["a"]; first.groups[changed] == second.groups[changed] {
		t.Error("the group of the changed policy is that of the state before")
	}
	if kept := keys["b"]; first.groups[kept] == nil || first.groups[kept] != second.groups[kept] {
		t.Error("the group of the other policy is not that of the state before")
	}
}
