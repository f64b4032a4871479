package registration

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

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
