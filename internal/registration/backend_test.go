package registration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// asBackend returns a policy with a backend, and with the rules and selectors of
// another policy.
func asBackend(p *v1alpha1.WebhookPolicy, edits ...func(*v1alpha1.Backend)) *v1alpha1.WebhookPolicy {
	p = p.DeepCopy()
	s := &p.Spec
	s.Mutations, s.Validations, s.AuditAnnotations, s.Bindings, s.ParamKind, s.Variables, s.PodTemplates = nil, nil, nil, nil, nil, nil, nil
	s.MatchConditions = nil
	s.MatchConstraints.ExcludeResourceRules = nil
	for i := range s.MatchConstraints.ResourceRules {
		s.MatchConstraints.ResourceRules[i].ResourceNames = nil
	}
	s.Backend = &v1alpha1.Backend{
		Type:                    v1alpha1.BackendValidating,
		Service:                 &v1alpha1.BackendService{Namespace: "shop", Name: "checks"},
		AdmissionReviewVersions: []string{"v1"},
		SideEffects:             admissionregistrationv1.SideEffectClassNone,
		CABundle:                []byte("bundle"),
	}
	for _, edit := range edits {
		edit(s.Backend)
	}
	return p
}

func beingMutating(b *v1alpha1.Backend) { b.Type = v1alpha1.BackendMutating }

// TestRandomBackends compares the requests that the API server sends to backends
// with the requests that the policies' rules, selectors and guards match.
func TestRandomBackends(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	requests := allRequests()
	sent, guarded := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		var policies []*v1alpha1.WebhookPolicy
		for i, p := range randomPolicies(r, 1+r.IntN(8)) {
			if i%2 == 0 {
				policies = append(policies, asBackend(p))
			} else {
				policies = append(policies, asBackend(p, beingMutating))
			}
		}
		plan := Build(Input{Policies: policies, Endpoint: testService, ExemptNamespaces: testExempt})
		checkConfigurations(t, plan)
		if len(plan.Groups) != len(policies) {
			t.Fatalf("seed %d: %d policies with a backend are in %d groups, want one each", seed, len(policies), len(plan.Groups))
		}
		byName := map[string]*v1alpha1.WebhookPolicy{}
		for _, p := range policies {
			byName[p.Name] = p
		}
		for _, attr := range requests {
			if r.IntN(4) > 0 {
				continue
			}
			for _, group := range plan.Groups {
				policy := byName[group.Members[0]]
				want, matches := o.matched(t, policy.Spec.MatchConstraints, attr)
				excluded := isExcluded(attr, policy)
				got, called := o.called(t, group.Configuration, attr)
				if called != (matches && !excluded) || called && got != want {
					t.Errorf("seed %d: %s: called %t with %s, want %t with %s", seed, describe(attr), called, got, matches && !excluded, want)
				}
				if called {
					sent++
				} else if matches {
					guarded++
				}
			}
		}
	}
	if sent < 200 || guarded < 200 {
		t.Errorf("the random policies are too similar: %d requests are sent, %d are guarded", sent, guarded)
	}
}

// A change of a policy with a backend updates its configuration, unless the phase
// or the order changes.
func TestBackendIsUpdatedInPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	base := randomPolicies(r, 1)[0]
	before := Build(Input{Policies: []*v1alpha1.WebhookPolicy{asBackend(base)}, Endpoint: testService})
	changed := asBackend(base, func(b *v1alpha1.Backend) {
		b.Service, b.URL, b.SideEffects = nil, "https://a.example.com/", admissionregistrationv1.SideEffectClassNoneOnDryRun
	})
	changed.Spec.FailurePolicy, changed.Spec.TimeoutSeconds = new(admissionregistrationv1.Ignore), new(int32(29))
	changed.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{testRule()}}
	after := Build(Input{Policies: []*v1alpha1.WebhookPolicy{changed}, Endpoint: testService})
	changes := Diff(after, []Configuration{before.Groups[0].Configuration})
	if len(changes.Apply) != 1 || len(changes.Delete) != 0 || changes.Apply[0].GetName() != before.Groups[0].Configuration.GetName() {
		t.Errorf("changes %+v, want one apply of the existing configuration", changes)
	}
	if _, ok, why := Registered(changed, after, []Configuration{before.Groups[0].Configuration}); ok || !strings.Contains(why, "is not updated yet") {
		t.Errorf("registered %t (%s) before the update", ok, why)
	}
	if _, ok, why := Registered(changed, after, []Configuration{after.Groups[0].Configuration}); !ok {
		t.Errorf("not registered after the update: %s", why)
	}
}

func testRule() admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
}

// Without a matchCondition, API servers call the backend for requests that the
// policy does not match.
func TestBackendWithoutItsConditionsIsNotRegistered(t *testing.T) {
	p := asBackend(randomPolicies(rand.New(rand.NewPCG(1, 9)), 1)[0])
	p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "true"}}
	plan := Build(Input{Policies: []*v1alpha1.WebhookPolicy{p}, Endpoint: testService})
	have := clone(plan.Groups[0].Configuration)
	webhooks := Webhooks(have)
	webhooks[0].MatchConditions = testGuards.conditions(webhooks[0].Rules)
	setWebhooks(have, webhooks)
	if _, ok, why := Registered(p, plan, []Configuration{have}); ok || !strings.Contains(why, "matchConditions") {
		t.Errorf("registered %t (%s)", ok, why)
	}
}

func TestBackendBundles(t *testing.T) {
	p := asBackend(randomPolicies(rand.New(rand.NewPCG(1, 10)), 1)[0])
	other := asBackend(p)
	other.Name = "other"
	bundle := []byte("another")
	e := Prepare(p)
	plan := Build(Input{Entries: []Entry{e.WithBundle(bundle), Prepare(other)}, Endpoint: testService, CABundle: []byte("ostiary")})
	bundle[0] = 'X'
	observed := []Configuration{plan.Groups[0].Configuration, plan.Groups[1].Configuration}
	bundles := ObservedBundles(observed)
	for name, tt := range map[string]struct {
		of   Entry
		want string
	}{
		"from WithBundle": {e, "another"},
		"from the policy": {Prepare(other), "bundle"},
		"no backend":      {Prepare(randomPolicies(rand.New(rand.NewPCG(1, 11)), 1)[0]), ""},
	} {
		if got := bundles.Of(tt.of); string(got) != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := Webhooks(Build(Input{Entries: []Entry{e}, Endpoint: testService}).Groups[0].Configuration)[0].ClientConfig.CABundle; !bytes.Equal(got, []byte("bundle")) {
		t.Errorf("WithBundle changed its receiver: %s", got)
	}
}

func TestBackendNamesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a.b", "backend-a", "a.static.k8s.io", strings.Repeat("a", 200), strings.Repeat("a", 201), strings.Repeat("a", 253), strings.Repeat("b", 253)} {
		group := backendGroup(name)
		if other, taken := seen[group]; taken {
			t.Errorf("policies %.20s and %.20s share the name %s", name, other, group)
		}
		seen[group] = name
		if strings.HasSuffix(group, ".static.k8s.io") {
			t.Errorf("policy %s: API servers of 1.37 reject the name %s", name, group)
		}
		if n := len("1000-" + group + webhookDomain); n > 253 {
			t.Errorf("policy of %d letters: the webhook's name has %d", len(name), n)
		}
		if n := len(PhaseValidate.ConfigurationPrefix() + "1000-" + group); n > 253 {
			t.Errorf("policy of %d letters: the configuration's name has %d", len(name), n)
		}
	}
}

func TestCheckBackend(t *testing.T) {
	rules := []admissionregistrationv1.NamedRuleWithOperations{testRule()}
	conditions := func(n int) []admissionregistrationv1.MatchCondition {
		out := make([]admissionregistrationv1.MatchCondition, n)
		for i := range out {
			out[i] = admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: "true"}
		}
		return out
	}
	const noURL = "spec.backend.url: Forbidden: write url as https://host[:port]/path: the API server calls nothing else"
	tests := map[string]struct {
		edit func(*v1alpha1.WebhookPolicySpec)
		want []string
	}{
		"63 conditions and the guard": {edit: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions = conditions(63) }},
		"64 conditions and the guard": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions = conditions(64) },
			want: []string{"spec.matchConditions: Too many: 64: must have at most 63 items"},
		},
		"63 conditions, the guard and breakGlass": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions, s.BreakGlass = conditions(63), true },
			want: []string{"spec.matchConditions: Too many: 63: must have at most 62 items"},
		},
		"the name of the condition for breakGlass": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "may-not-break-glass", Expression: "true"}}
			},
			want: []string{`spec.matchConditions[0].name: Invalid value: "may-not-break-glass": choose another name: Ostiary has a condition of this name`},
		},
		"64 conditions without a guard": {edit: func(s *v1alpha1.WebhookPolicySpec) {
			s.MatchConditions = conditions(64)
			s.MatchConstraints.ResourceRules[0].APIGroups = []string{"apps"}
		}},
		"names of Ostiary's own conditions": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: guardName, Expression: "true"}, {Name: conditionName, Expression: "true"}, {Name: exemptName, Expression: "true"}}
			},
			want: []string{
				`spec.matchConditions[0].name: Invalid value: "not-critical-resources": choose another name: Ostiary has a condition of this name`,
				`spec.matchConditions[1].name: Invalid value: "matches-policy": choose another name: Ostiary has a condition of this name`,
				`spec.matchConditions[2].name: Invalid value: "not-exempt-namespaces": choose another name: Ostiary has a condition of this name`,
			},
		},
		"a guarded resource": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.ResourceRules[0].APIGroups = []string{v1alpha1.GroupName}
			},
			want: []string{`spec.matchConstraints.resourceRules[0].apiGroups[0]: Forbidden: remove "admission.ostiary.dev": policies never apply to it, so that a broken policy cannot lock the cluster`},
		},
		"validations": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.Validations = []v1alpha1.Validation{{Expression: "true"}}
			},
			want: []string{"spec.validations: Forbidden: remove validations: it has no effect in a policy with a backend"},
		},
		"resource names": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.ResourceRules[0].ResourceNames = []string{"a"}
			},
			want: []string{"spec.matchConstraints.resourceRules[0].resourceNames: Forbidden: compare request.name in a matchCondition instead: webhooks have no resourceNames"},
		},
		"service and url": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.URL = "https://a" },
			want: []string{`spec.backend: Invalid value: "": set either service or url`},
		},
		"url with http": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "http://a" },
			want: []string{noURL},
		},
		"invalid url with a password": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "https://me:p%zz@a" },
			want: []string{noURL},
		},
		"url with a user": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "https://me:secret@a" },
			want: []string{"spec.backend.url: Forbidden: remove user, query and fragment from url: the API server rejects them"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := asBackend(&v1alpha1.WebhookPolicy{Spec: v1alpha1.WebhookPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules}}})
			tt.edit(&p.Spec)
			var got []string
			for _, err := range Check(p) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}
