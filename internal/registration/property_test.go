package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

var (
	testExempt = []string{"ostiary-system"}

	testNamespaces = []*corev1.Namespace{
		testNamespace("prod", "tier", "prod"),
		testNamespace("test", "tier", "test"),
		testNamespace("plain", "", ""),
		testNamespace("kube-system", "tier", "prod"),
		testNamespace("kube-node-lease", "", ""),
		testNamespace("ostiary-system", "tier", "test"),
	}

	testResources = []testResource{
		{"", "pods", []string{"v1"}, []string{"", "status", "exec"}, true},
		{"", "namespaces", []string{"v1"}, []string{"", "status", "finalize"}, false},
		{"", "nodes", []string{"v1"}, []string{"", "status"}, false},
		{"", "events", []string{"v1"}, []string{""}, true},
		{"events.k8s.io", "events", []string{"v1"}, []string{""}, true},
		{"apps", "deployments", []string{"v1", "v1beta1", "v1beta2"}, []string{"", "status", "scale"}, true},
		{"autoscaling", "scalers", []string{"v2", "v1"}, []string{"", "status"}, true},
		{"example.com", "pods", []string{"v1"}, []string{"", "status"}, true},
		{"example.com", "leases", []string{"v1"}, []string{""}, true},
		{"example.com", "events", []string{"v1"}, []string{""}, false},
		{"coordination.k8s.io", "leases", []string{"v1"}, []string{"", "status"}, true},
		{"coordination.k8s.io", "leasecandidates", []string{"v1"}, []string{""}, true},
		{"authentication.k8s.io", "tokenreviews", []string{"v1"}, []string{""}, false},
		{"authorization.k8s.io", "subjectaccessreviews", []string{"v1"}, []string{""}, false},
		{"authorization.k8s.io", "localsubjectaccessreviews", []string{"v1"}, []string{""}, true},
		{"authorization.k8s.io", "pods", []string{"v1"}, []string{""}, true},
		{"admissionregistration.k8s.io", "validatingwebhookconfigurations", []string{"v1"}, []string{""}, false},
		{"admission.ostiary.dev", "webhookpolicies", []string{"v1alpha1", "v1"}, []string{"", "status"}, false},
	}
)

func testNamespace(name, key, value string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	if key != "" {
		ns.Labels[key] = value
	}
	return ns
}

// TestRandomPolicies compares, for random policies and every request there is,
// what the API server sends to the planned webhooks with what native policies
// would look at.
func TestRandomPolicies(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	requests := allRequests()
	var sent, kept int
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		policies := randomPolicies(r, 1+r.IntN(30))
		plan := Build(Input{Policies: policies, Endpoint: testService, ExemptNamespaces: testExempt})
		checkConfigurations(t, plan)
		for _, attr := range requests {
			if r.IntN(4) > 0 {
				continue
			}
			n, m := checkRequest(t, o, policies, plan, attr)
			sent, kept = sent+n, kept+m
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if sent < 1000 || kept < 1000 {
		t.Errorf("the generator is too tame: %d calls, %d matches kept out by guards", sent, kept)
	}
}

// checkRequest counts the calls that a request causes, and the policies that
// match it but are kept out by the guards.
func checkRequest(t *testing.T, o *oracle, policies []*v1alpha1.WebhookPolicy, plan Plan, attr admission.Attributes) (sent, kept int) {
	t.Helper()
	byName := map[string]*v1alpha1.WebhookPolicy{}
	delivered := map[string][]string{}
	for _, policy := range policies {
		byName[policy.Name] = policy
	}
	off := offLimits(attr)
	for _, group := range plan.Groups {
		gvr, called := o.called(t, group.Configuration, attr)
		if !called {
			continue
		}
		sent++
		if off {
			t.Errorf("%s is sent to %s", describe(attr), group.Name)
		}
		if !slices.ContainsFunc(group.Members, func(name string) bool {
			_, matches := o.matched(t, rulesOnly(byName[name]), attr)
			return matches
		}) {
			t.Errorf("%s is sent to %s, but no member's rules match", describe(attr), group.Name)
		}
		for _, name := range group.Members {
			delivered[name] = append(delivered[name], gvr.String())
		}
	}
	for _, policy := range policies {
		gvr, matches := o.matched(t, rulesOnly(policy), attr)
		switch {
		case matches && off:
			kept++
		case matches && !slices.Equal(delivered[policy.Name], []string{gvr.String()}):
			t.Errorf("%s: policy %s must be shown %s once, is shown %v", describe(attr), policy.Name, gvr, delivered[policy.Name])
		}
	}
	return sent, kept
}

func offLimits(attr admission.Attributes) bool {
	exempt := append([]string{"kube-system", "kube-node-lease"}, testExempt...)
	gr := attr.GetResource().GroupResource()
	switch gr.Group {
	case "admission.ostiary.dev", "admissionregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io":
		return true
	}
	switch gr.String() {
	case "events", "events.events.k8s.io", "leases.coordination.k8s.io":
		return true
	}
	return slices.Contains(exempt, attr.GetNamespace())
}

func allRequests() []admission.Attributes {
	var out []admission.Attributes
	for _, r := range testResources {
		for _, version := range r.versions {
			for _, sub := range r.subresources {
				for _, op := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
					for _, ns := range testNamespaces {
						namespace, name, objectLabels := ns.Name, "thing", map[string]string{"app": ns.Name}
						if r.resource == "namespaces" {
							name, objectLabels = ns.Name, ns.Labels
						} else if !r.namespaced {
							namespace = ""
						}
						out = append(out, r.attributes(version, sub, namespace, name, op, objectLabels))
					}
				}
			}
		}
	}
	return out
}

func TestSameBytesInAnyOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		policies := randomPolicies(r, 200)
		before := make([]*v1alpha1.WebhookPolicy, len(policies))
		for i, policy := range policies {
			before[i] = policy.DeepCopy()
		}
		in := Input{Policies: policies, Endpoint: testService, CABundle: []byte("bundle"), ExemptNamespaces: []string{"b", "a"}}
		want := planJSON(t, Build(in))
		if diff := cmp.Diff(before, policies); diff != "" {
			t.Fatalf("Build changed its input:\n%s", diff)
		}
		shuffled := slices.Clone(policies)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		in.Policies = nil
		in.ExemptNamespaces = []string{"a", "b", "a"}
		for i, policy := range shuffled {
			if i%2 == 0 {
				in.Policies = append(in.Policies, policy)
			} else {
				in.Entries = append(in.Entries, Prepare(policy))
			}
		}
		if got := planJSON(t, Build(in)); !bytes.Equal(want, got) {
			t.Fatalf("seed %d: order matters:\n%s", seed, cmp.Diff(string(want), string(got)))
		}
	}
}

func TestPlanSharesNothingWithEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	in := Input{Endpoint: testService, CABundle: []byte("bundle"), ExemptNamespaces: []string{"a"}}
	for _, policy := range randomPolicies(r, 100) {
		in.Entries = append(in.Entries, Prepare(policy))
	}
	want := planJSON(t, Build(in))
	for _, group := range Build(in).Groups {
		scribble(&group.Configuration.Webhooks[0])
	}
	if got := planJSON(t, Build(in)); !bytes.Equal(want, got) {
		t.Errorf("changing a plan changed the next one:\n%s", cmp.Diff(string(want), string(got)))
	}
}

func scribble(w *admissionregistrationv1.ValidatingWebhook) {
	for i := range w.Rules {
		for _, list := range [][]string{w.Rules[i].APIGroups, w.Rules[i].APIVersions, w.Rules[i].Resources} {
			list[0] = "scribble"
		}
		*w.Rules[i].Scope = "scribble"
	}
	for _, s := range []*metav1.LabelSelector{w.NamespaceSelector, w.ObjectSelector} {
		for key := range s.MatchLabels {
			s.MatchLabels[key] = "scribble"
		}
		for i := range s.MatchExpressions {
			if len(s.MatchExpressions[i].Values) > 0 {
				s.MatchExpressions[i].Values[0] = "scribble"
			}
		}
	}
	w.ClientConfig.CABundle[0] = 'x'
	*w.ClientConfig.Service.Port = 1
	*w.TimeoutSeconds, *w.FailurePolicy = 1, "scribble"
}

// TestChangeStaysInItsGroup adds and removes single policies and looks at
// which configurations differ.
func TestChangeStaysInItsGroup(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		policies := randomPolicies(r, 100)
		all := Build(Input{Policies: policies, Endpoint: testService})
		removed := policies[r.IntN(len(policies))].Name
		rest := slices.DeleteFunc(slices.Clone(policies), func(p *v1alpha1.WebhookPolicy) bool { return p.Name == removed })
		without := Build(Input{Policies: rest, Endpoint: testService})
		own := all.GroupsOf(removed)
		if len(own) != 1 {
			t.Fatalf("policy %s is in groups %v, want one", removed, own)
		}
		if got := differing(t, all, without); !slices.Equal(got, own) {
			t.Errorf("seed %d: removing %s changes %v, want %v", seed, removed, got, own)
		}
	}
}

// differing names the groups that two plans do not have in common.
func differing(t *testing.T, a, b Plan) []string {
	t.Helper()
	bytesOf := func(p Plan) map[string]string {
		out := map[string]string{}
		for _, group := range p.Groups {
			out[group.Name] = string(planJSON(t, Plan{Groups: []Group{group}}))
		}
		return out
	}
	was, is := bytesOf(a), bytesOf(b)
	var names []string
	for _, m := range []map[string]string{was, is} {
		for name := range m {
			if was[name] != is[name] {
				names = append(names, name)
			}
		}
	}
	return sortedSet(names)
}

// planJSON is one configuration a line.
func planJSON(t *testing.T, plan Plan) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	for _, group := range plan.Groups {
		if err := encoder.Encode(group.Configuration); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// checkConfigurations checks what the API server demands of configurations,
// and that what is written is what will be read back.
func checkConfigurations(t testing.TB, plan Plan) {
	t.Helper()
	names := map[string]bool{}
	for _, group := range plan.Groups {
		config, webhook := group.Configuration, group.Configuration.Webhooks[0]
		if names[group.Name] {
			t.Errorf("group %s stands twice in the plan", group.Name)
		}
		names[group.Name] = true
		if msgs := validation.IsDNS1123Label(group.Name); len(msgs) > 0 {
			t.Errorf("group %s: %v", group.Name, msgs)
		}
		if msgs := validation.IsFullyQualifiedDomainName(nil, webhook.Name); len(msgs) > 0 {
			t.Errorf("webhook %s: %v", webhook.Name, msgs)
		}
		if len(group.Members) > MaxMembers || !slices.IsSorted(group.Members) {
			t.Errorf("group %s: %d members, or not sorted", group.Name, len(group.Members))
		}
		if diff := cmp.Diff(group.Members, Members(config)); diff != "" {
			t.Errorf("group %s: annotation differs from members:\n%s", group.Name, diff)
		}
		if len(config.OwnerReferences) != len(group.Members) {
			t.Errorf("group %s: %d owners of %d members", group.Name, len(config.OwnerReferences), len(group.Members))
		}
		for i := range webhook.Rules {
			rule := &webhook.Rules[i]
			if rule.Scope == nil {
				t.Errorf("group %s: a rule has no scope", group.Name)
			}
			errs := append(checkOperations(rule.Operations, nil), checkRule(&rule.Rule, nil)...)
			if len(errs) > 0 {
				t.Errorf("group %s: the API server refuses its rules: %v", group.Name, errs.ToAggregate())
			}
		}
		if webhook.FailurePolicy == nil || webhook.MatchPolicy == nil || webhook.NamespaceSelector == nil || webhook.ObjectSelector == nil ||
			webhook.TimeoutSeconds == nil || webhook.SideEffects == nil || len(webhook.AdmissionReviewVersions) == 0 {
			t.Errorf("group %s: a field is left to the API server's defaults", group.Name)
		}
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomPolicies(r *rand.Rand, n int) []*v1alpha1.WebhookPolicy {
	policies := make([]*v1alpha1.WebhookPolicy, n)
	for i := range policies {
		name := fmt.Sprintf("policy-%d", i)
		policies[i] = &v1alpha1.WebhookPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
			Spec: v1alpha1.WebhookPolicySpec{
				MatchConstraints: randomMatch(r),
				TimeoutSeconds:   pick(r, nil, nil, nil, new(int32(1)), new(int32(30))),
				FailurePolicy:    pick(r, nil, nil, new(admissionregistrationv1.Ignore), new(admissionregistrationv1.Fail)),
			},
		}
		if r.IntN(5) == 0 {
			policies[i].Spec.Bindings = []v1alpha1.Binding{{Name: "a", ValidationActions: []admissionregistrationv1.ValidationAction{
				pick(r, admissionregistrationv1.Audit, admissionregistrationv1.Warn, admissionregistrationv1.Deny),
			}}}
		}
		if errs := Check(policies[i]); len(errs) > 0 {
			panic(fmt.Sprintf("the generator made an invalid policy: %v", errs.ToAggregate()))
		}
	}
	return policies
}

func randomMatch(r *rand.Rand) *admissionregistrationv1.MatchResources {
	match := &admissionregistrationv1.MatchResources{
		MatchPolicy:       pick(r, nil, nil, new(admissionregistrationv1.Equivalent), new(admissionregistrationv1.Exact)),
		NamespaceSelector: randomSelector(r, "tier", "prod", "test"),
		ObjectSelector:    randomSelector(r, "app", "prod", "plain"),
	}
	for range 1 + r.IntN(3) {
		match.ResourceRules = append(match.ResourceRules, randomRule(r))
	}
	return match
}

func randomSelector(r *rand.Rand, key, a, b string) *metav1.LabelSelector {
	requirement := func(op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	return pick(r, nil, nil, nil, nil, &metav1.LabelSelector{},
		&metav1.LabelSelector{MatchLabels: map[string]string{key: a}},
		requirement(metav1.LabelSelectorOpIn, b, a), requirement(metav1.LabelSelectorOpIn, a, b),
		requirement(metav1.LabelSelectorOpNotIn, a), requirement(metav1.LabelSelectorOpDoesNotExist))
}

// randomRule is a rule that Check accepts.
func randomRule(r *rand.Rand) admissionregistrationv1.NamedRuleWithOperations {
	for {
		var rule admissionregistrationv1.NamedRuleWithOperations
		rule.APIGroups = pick(r, []string{""}, []string{""}, []string{"apps"}, []string{"apps", ""}, []string{"autoscaling"}, []string{"example.com", "apps"},
			[]string{"coordination.k8s.io"}, []string{"*"})
		rule.APIVersions = pick(r, []string{"v1"}, []string{"v1"}, []string{"v1"}, []string{"v1beta1"}, []string{"v2", "v1"}, []string{"*"})
		for range 1 + r.IntN(3) {
			rule.Resources = append(rule.Resources, pick(r, "pods", "pods", "pods/status", "pods/*", "deployments", "deployments/scale", "scalers",
				"nodes", "namespaces", "namespaces/*", "leases", "*", "*/*", "*/status", "leasecandidates", "events"))
		}
		rule.Operations = pick(r,
			[]admissionregistrationv1.OperationType{"CREATE"},
			[]admissionregistrationv1.OperationType{"UPDATE", "CREATE"},
			[]admissionregistrationv1.OperationType{"DELETE"},
			[]admissionregistrationv1.OperationType{"CONNECT", "DELETE", "CREATE", "UPDATE"},
			[]admissionregistrationv1.OperationType{"*"})
		rule.Scope = pick(r, nil, nil, new(admissionregistrationv1.AllScopes), new(admissionregistrationv1.NamespacedScope), new(admissionregistrationv1.ClusterScope))
		rules := []admissionregistrationv1.NamedRuleWithOperations{rule}
		if len(checkRules(rules, nil)) == 0 && len(checkGuards(&rule.Rule, nil)) == 0 {
			return rule
		}
	}
}
