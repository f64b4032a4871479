package registration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

func TestRegistered(t *testing.T) {
	policies := []*v1alpha1.WebhookPolicy{policyFor("a", "pods"), policyFor("b", "services")}
	plan := planOf(policies...)
	group := plan.Groups[0].Name
	object := "ValidatingWebhookConfiguration ostiary-validate-" + group
	name := plan.Groups[0].webhook.Name
	webhook := "webhook " + name
	refs := []v1alpha1.WebhookReference{{
		Kind: "ValidatingWebhookConfiguration", Configuration: "ostiary-validate-" + group, Webhook: name,
	}}
	tests := map[string]struct {
		policy *v1alpha1.WebhookPolicy
		change func(*config)
		gone   bool
		why    string
	}{
		"as planned":                    {},
		"additional members":            {change: func(c *config) { *c = *moving(c) }},
		"additional rules with a guard": {change: func(c *config) { *c = *wide(c) }},
		"additional rules without the match condition for namespaces": {
			change: func(c *config) {
				narrow := c.Webhooks[0].NamespaceSelector
				*c = *wide(c)
				c.Webhooks[0].NamespaceSelector = narrow
			},
			why: webhook + " in " + object + " is not updated yet: namespaceSelector",
		},
		"no mutations or validations": {
			policy: policyFor("a", "pods", func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations = nil }),
			why:    "no webhook is planned for it: it has no mutations or validations",
		},
		"rules of another member are missing": {change: func(c *config) { c.Webhooks[0].Rules = podsOnly(c) }},
		"another label":                       {change: func(c *config) { c.Labels["a"] = "b" }},
		"not planned":                         {policy: policyFor("z", "pods"), why: "no validating webhook is planned for it yet"},
		"other settings are planned":          {policy: policyFor("a", "pods", timeout(1)), why: "the validating webhook for its latest change is not planned yet"},
		"no configuration":                    {gone: true, why: object + " does not exist yet"},
		"no webhook":                          {change: func(c *config) { c.Webhooks = nil }, why: object + " has no webhook " + name + " yet"},
		"not a member":                        {change: func(c *config) { c.Annotations[AnnotationMembers] = "b" }, why: object + " does not list it as a member yet"},
		"owner with another UID": {
			change: func(c *config) { c.OwnerReferences[0].UID = "old" },
			why:    object + " has no owner reference to it yet",
		},
		"rules missing": {
			change: func(c *config) { c.Webhooks[0].Rules = nil },
			why:    object + " does not cover all of its resourceRules yet",
		},
		"other rules": {policy: policyFor("a", "secrets"), why: object + " does not cover all of its resourceRules yet"},
		"another bundle": {
			change: func(c *config) { c.Webhooks[0].ClientConfig.CABundle = []byte("old") },
			why:    webhook + " in " + object + " is not updated yet: clientConfig.caBundle",
		},
		"several fields": {
			change: func(c *config) {
				w := &c.Webhooks[0]
				w.ClientConfig.URL, w.FailurePolicy, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector = new("https://x"), nil, nil, nil, nil
				w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions, w.MatchConditions = nil, nil, nil, never()
			},
			why: webhook + " in " + object + " is not updated yet: clientConfig, failurePolicy, matchPolicy, namespaceSelector, " +
				"objectSelector, sideEffects, timeoutSeconds, admissionReviewVersions, matchConditions",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.policy == nil {
				tc.policy = policies[0]
			}
			observed := observe(plan)
			if tc.change != nil {
				edit(observed[0], tc.change)
			}
			if tc.gone {
				observed = nil
			}
			gotRefs, ok, why := Registered(tc.policy, plan, observed)
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
			if ok != (tc.why == "") {
				t.Errorf("ok = %t", ok)
			}
			var want []v1alpha1.WebhookReference
			if tc.why == "" {
				want = refs
			}
			if diff := cmp.Diff(want, gotRefs); diff != "" {
				t.Errorf("refs (-want +got):\n%s", diff)
			}
		})
	}
}

// testGuards are the guards of every group of planOf without selectors.
var testGuards = guards{exempt: guard.ExemptNamespaces(nil)}

// wide returns a configuration with an additional policy for everything.
func wide(c *config) *config {
	out := c.DeepCopy()
	out.Annotations[AnnotationMembers] += ",y"
	out.OwnerReferences = append(out.OwnerReferences, ownerOf("y"))
	out.Webhooks[0].Rules = append(out.Webhooks[0].Rules, plainRules(policyFor("y", "*/*").Spec.MatchConstraints.ResourceRules, PhaseValidate)...)
	out.Webhooks[0].MatchConditions = testGuards.conditions(out.Webhooks[0].Rules)
	out.Webhooks[0].NamespaceSelector = testGuards.namespaceSelector(out.Webhooks[0].Rules)
	return out
}

// moving returns a configuration while a policy for everything moves.
func moving(c *config) *config {
	group := Group{Phase: PhaseMutate, Members: Members(c), Configuration: c, webhook: c.Webhooks[0], guards: testGuards}
	return view(widened(&group, wide(c)))
}

func podsOnly(c *config) []admissionregistrationv1.RuleWithOperations {
	rules := c.DeepCopy().Webhooks[0].Rules
	for i := range rules {
		rules[i].Resources = []string{"pods"}
	}
	return rules
}

func TestRegisteredInADividedGroup(t *testing.T) {
	policies := samePolicies(MaxMembers+1, "pods")
	plan := planOf(policies...)
	view := NewView(plan, observe(plan))
	for _, policy := range policies {
		refs, ok, why := view.Registered(Prepare(policy))
		if !ok || len(refs) != 1 || !strings.HasPrefix(refs[0].Configuration, PhaseValidate.ConfigurationPrefix()+Prepare(policy).memberships[0].groupName()+"-") {
			t.Fatalf("%s: %v %t %q", policy.Name, refs, ok, why)
		}
	}
}

func TestRegisteredInBothPhases(t *testing.T) {
	policy := policyFor("a", "pods", doingBoth)
	plan := planOf(policy)
	mutate, validate := plan.Groups[0], plan.Groups[1]
	refs := []v1alpha1.WebhookReference{
		{Kind: "MutatingWebhookConfiguration", Configuration: "ostiary-mutate-" + mutate.Name, Webhook: mutate.webhook.Name},
		{Kind: "ValidatingWebhookConfiguration", Configuration: "ostiary-validate-" + validate.Name, Webhook: validate.webhook.Name},
	}
	observed := observe(plan)
	reinvoked := clone(observed[0])
	edit(reinvoked, func(c *config) { *c.Webhooks[0].ReinvocationPolicy = "IfNeeded" })
	tests := map[string]struct {
		policy   *v1alpha1.WebhookPolicy
		plan     Plan
		observed []Configuration
		wantRefs []v1alpha1.WebhookReference
		wantWhy  string
	}{
		"in both phases":    {policy: policy, plan: plan, observed: observed, wantRefs: refs},
		"no configurations": {policy: policy, plan: plan, wantWhy: "MutatingWebhookConfiguration " + refs[0].Configuration + " does not exist yet"},
		"mutating only":     {policy: policy, plan: plan, observed: observed[:1], wantRefs: refs[:1], wantWhy: "ValidatingWebhookConfiguration " + refs[1].Configuration + " does not exist yet"},
		"validating only":   {policy: policy, plan: plan, observed: observed[1:], wantRefs: refs[1:], wantWhy: "MutatingWebhookConfiguration " + refs[0].Configuration + " does not exist yet"},
		"only its validations are planned": {
			policy: policy, plan: planOf(policyFor("a", "pods")), observed: observed[1:], wantRefs: refs[1:], wantWhy: "no mutating webhook is planned for it yet",
		},
		"another order is planned": {
			policy: policyFor("a", "pods", doingBoth, order(1)), plan: plan, observed: observed, wantRefs: refs[1:],
			wantWhy: "the mutating webhook for its latest change is not planned yet",
		},
		"another reinvocationPolicy": {
			policy: policy, plan: plan, observed: []Configuration{reinvoked, observed[1]}, wantRefs: refs[1:],
			wantWhy: "webhook " + refs[0].Webhook + " in MutatingWebhookConfiguration " + refs[0].Configuration + " is not updated yet: reinvocationPolicy",
		},
		"a removed phase": {policy: policyFor("a", "pods"), plan: planOf(policyFor("a", "pods")), observed: observed, wantRefs: refs[1:]},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			refs, ok, why := Registered(tc.policy, tc.plan, tc.observed)
			if diff := cmp.Diff(tc.wantRefs, refs); diff != "" {
				t.Errorf("refs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWhy, why); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
			if ok != (tc.wantWhy == "") {
				t.Errorf("ok = %t", ok)
			}
		})
	}
}
