package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/validation"
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
		{"example.com", "namespaces", []string{"v1"}, []string{"", "status"}, true},
	}

	// exemptLabels are those of an exempt namespace. Clients can set them in other objects.
	exemptLabels = map[string]string{corev1.LabelMetadataName: "kube-system", "tier": "prod"}
)

func testNamespace(name, key, value string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	if key != "" {
		ns.Labels[key] = value
	}
	return ns
}

// seeds returns how many random cases a test draws: a third of n in the short form.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return n / 3
	}
	return n
}

// TestRandomPolicies compares, for random policies and all test requests, the
// requests that the API server sends to the webhooks of both phases with those that
// native policies and bindings match.
func TestRandomPolicies(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	requests := allRequests()
	var total counts
	for seed := range seeds(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		policies := randomPolicies(r, 1+r.IntN(30))
		plan := Build(Input{Policies: policies, Endpoint: testService, ExemptNamespaces: testExempt})
		checkConfigurations(t, plan)
		for _, attr := range requests {
			if r.IntN(4) > 0 {
				continue
			}
			for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
				n := checkRequest(t, o, policies, plan, phase, attr)
				total = counts{total.sent + n.sent, total.excluded + n.excluded, total.spared + n.spared, total.allowed + n.allowed}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if total.sent < 1000 || total.excluded < 1000 || total.spared < 200 || total.allowed < 50 {
		t.Errorf("the random policies are too similar: %+v", total)
	}
}

// counts are numbers of calls (sent), and of policies that match a request:
// excluded by guards, not called because of a binding or condition (spared), and for
// an allowed critical resource (allowed).
type counts struct{ sent, excluded, spared, allowed int }

func checkRequest(t *testing.T, o *oracle, policies []*v1alpha1.WebhookPolicy, plan Plan, phase Phase, attr admission.Attributes) (n counts) {
	t.Helper()
	byName := map[string]*v1alpha1.WebhookPolicy{}
	delivered := map[string][]string{}
	for _, policy := range policies {
		byName[policy.Name] = policy
	}
	for _, group := range plan.Groups {
		if group.Phase != phase || group.Key().OfTemplates() { // TestTemplateCondition and the golden files are about these
			continue
		}
		gvr, called := o.called(t, group.Configuration, attr)
		if !called {
			continue
		}
		n.sent++
		for _, name := range group.Members {
			if isExcluded(attr, byName[name]) {
				t.Errorf("%s is sent to %s with member %s, which excludes it", describe(attr), group.Name, name)
			}
		}
		if !slices.ContainsFunc(group.Members, func(name string) bool { return o.concerns(t, byName[name], phase, attr) }) {
			t.Errorf("%s is sent to %s, but no member matches it", describe(attr), group.Name)
		}
		for _, name := range group.Members {
			delivered[name] = append(delivered[name], gvr.String())
		}
	}
	for _, policy := range policies {
		if !isInPhase(policy, phase) {
			continue
		}
		gvr, matches := o.matched(t, rulesOnly(policy, phase), attr)
		if phase == PhaseValidate && matches && !o.evaluates(t, policy, attr) {
			if delivered[policy.Name] == nil {
				n.spared++
			}
			continue // not sent, or Ostiary evaluates the conditions again
		}
		bound := slices.ContainsFunc(policy.Spec.EffectiveBindings(), func(b v1alpha1.Binding) bool { return o.binds(t, b, attr) })
		excluded := isExcluded(attr, policy)
		if matches && !excluded && isExcluded(attr, &v1alpha1.WebhookPolicy{}) {
			n.allowed++
		}
		switch {
		case matches && excluded:
			n.excluded++
		case matches && bound && !slices.Equal(delivered[policy.Name], []string{gvr.String()}):
			t.Errorf("%s: policy %s gets %v, want %s once", describe(attr), policy.Name, delivered[policy.Name], gvr)
		case matches && delivered[policy.Name] == nil:
			n.spared++
		}
	}
	return n
}

func isInPhase(policy *v1alpha1.WebhookPolicy, phase Phase) bool {
	if phase == PhaseMutate {
		return policy.Spec.Mutates()
	}
	return policy.Spec.Validates()
}

// concerns reports whether the rules and selectors of a policy match a request, and
// the selectors of its binding that the webhook has too.
func (o *oracle) concerns(t testing.TB, policy *v1alpha1.WebhookPolicy, phase Phase, attr admission.Attributes) bool {
	t.Helper()
	if _, matches := o.matched(t, rulesOnly(policy, phase), attr); !matches {
		return false
	}
	spec := &policy.Spec
	if spec.ParamKind != nil || len(spec.Bindings) != 1 || spec.Bindings[0].MatchResources == nil {
		return true
	}
	narrow := &admissionregistrationv1.MatchResources{}
	forNamespaces := slices.ContainsFunc(spec.MatchConstraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(rule.Resources, func(r string) bool { return r[0] == '*' || strings.HasPrefix(r, "namespaces") })
	})
	if phase == PhaseValidate || !forNamespaces {
		narrow.NamespaceSelector = spec.Bindings[0].MatchResources.NamespaceSelector
	}
	if own := spec.MatchConstraints.ObjectSelector; phase == PhaseValidate && (own == nil || len(own.MatchLabels)+len(own.MatchExpressions) == 0) {
		narrow.ObjectSelector = spec.Bindings[0].MatchResources.ObjectSelector
	}
	_, matches := o.matched(t, narrow, attr)
	return matches
}

// binds reports whether a native binding matches a request.
func (o *oracle) binds(t testing.TB, b v1alpha1.Binding, attr admission.Attributes) bool {
	t.Helper()
	if b.MatchResources == nil {
		return true
	}
	_, matches := o.matched(t, b.MatchResources, attr)
	return matches
}

// isExcluded reports whether the guards exclude a request from a policy.
func isExcluded(attr admission.Attributes, policy *v1alpha1.WebhookPolicy) bool {
	exempt := append([]string{"kube-system", "kube-node-lease"}, testExempt...)
	if slices.Contains(exempt, attr.GetNamespace()) {
		return true
	}
	gr := attr.GetResource().GroupResource()
	switch gr.Group {
	case "admission.ostiary.dev", "admissionregistration.k8s.io":
		return true
	case "authentication.k8s.io", "authorization.k8s.io":
		return !isAllowed(policy, gr)
	}
	switch gr.String() {
	case "events", "events.events.k8s.io", "leases.coordination.k8s.io":
		return !isAllowed(policy, gr)
	}
	return false
}

// isAllowed reports whether a policy allows and names a critical resource. Events
// of both groups are the same resource.
func isAllowed(policy *v1alpha1.WebhookPolicy, gr schema.GroupResource) bool {
	return policy.Spec.AllowCriticalResources && slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(rule.Resources, gr.Resource) && slices.ContainsFunc(rule.APIGroups, func(group string) bool {
			return group == gr.Group || gr.Resource == "events" && (group == "" || group == "events.k8s.io")
		})
	})
}

func allRequests() []admission.Attributes {
	var out []admission.Attributes
	for _, r := range testResources {
		for _, version := range r.versions {
			for _, sub := range r.subresources {
				for _, op := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
					for _, ns := range testNamespaces {
						namespace, name, objectLabels := ns.Name, "thing", map[string]string{"app": ns.Name}
						switch {
						case r.resource == "namespaces" && r.group != "":
							objectLabels = exemptLabels
						case r.resource == "namespaces":
							name, objectLabels = ns.Name, ns.Labels
						case !r.namespaced:
							namespace = ""
						}
						out = append(out, r.attributes(version, sub, namespace, name, op, objectLabels, nil))
						if r.resource == "namespaces" && sub == "" && op == admission.Create { // with generateName
							out = append(out, r.attributes(version, sub, "", "", op, exemptLabels, nil))
						}
						if op == admission.Update {
							other := map[string]string{"app": "prod", "tier": "prod", "rank": "a", corev1.LabelMetadataName: name}
							out = append(out, r.attributes(version, sub, namespace, name, op, objectLabels, other))
						}
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
		overwrite(&Webhooks(group.Configuration)[0])
	}
	if got := planJSON(t, Build(in)); !bytes.Equal(want, got) {
		t.Errorf("changing a plan changed the next one:\n%s", cmp.Diff(string(want), string(got)))
	}
}

// overwrite changes the memory that a webhook refers to.
func overwrite(w *webhook) {
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

// Adding or removing a policy changes only the configurations of its groups, those of
// conditions that are delegated because its group is not called anyway, and those of policies
// that share, or no longer share, a group for requests in commonVersion with it.
func TestChangeAffectsOneGroup(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		policies := randomPolicies(r, 100)
		all := Build(Input{Policies: policies, Endpoint: testService})
		at := r.IntN(len(policies))
		removed := policies[at].Name
		rest := slices.Delete(slices.Clone(policies), at, at+1)
		without := Build(Input{Policies: rest, Endpoint: testService})
		own := append(all.GroupsOf(PhaseMutate, removed), all.GroupsOf(PhaseValidate, removed)...)
		memberships := len(Prepare(policies[at]).memberships)
		separated := len(own) > memberships
		if len(own) < memberships || len(own) > 2*memberships {
			t.Fatalf("policy %s is in groups %v, want one or two in each of its phases", removed, own)
		}
		var moved []string
		for _, p := range rest {
			for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
				before, after := all.GroupsOf(phase, p.Name), without.GroupsOf(phase, p.Name)
				if separated && !slices.Equal(before, after) {
					moved = append(append(moved, before...), after...)
				}
			}
		}
		got := slices.DeleteFunc(differing(t, all, without), func(name string) bool {
			return !slices.Contains(own, name) && (slices.Contains(moved, name) || slices.ContainsFunc(without.Groups, func(g Group) bool {
				return g.Name == name && ConditionOf(g.Configuration) != ""
			}))
		})
		if want := sortedSet(own); !slices.Equal(got, want) {
			t.Errorf("seed %d: removing %s changes %v, want %v", seed, removed, got, want)
		}
	}
}

// differing returns the names of the groups that differ between two plans.
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

// planJSON returns the configurations as JSON, one per line.
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

// checkConfigurations checks that configurations are valid, and that the API server
// sets no defaults in them.
func checkConfigurations(t testing.TB, plan Plan) {
	t.Helper()
	names := map[GroupKey]bool{}
	for _, group := range plan.Groups {
		config := group.Configuration
		if names[group.Key()] {
			t.Errorf("the plan contains group %s twice", group.Name)
		}
		names[group.Key()] = true
		if key, ok := GroupOf(config); !ok || key != group.Key() || PhaseOf(config) != group.Phase {
			t.Errorf("group %v has configuration %s of group %v", group.Key(), config.GetName(), key)
		}
		valid := utilvalidation.IsDNS1123Label
		if group.Path == "" { // the name contains the name of a policy
			valid = utilvalidation.IsDNS1123Subdomain
		}
		if msgs := valid(group.Name); len(msgs) > 0 {
			t.Errorf("group %s: %v", group.Name, msgs)
		}
		if len(group.Members) > MaxMembers || !slices.IsSorted(group.Members) {
			t.Errorf("group %s: %d members, or not sorted", group.Name, len(group.Members))
		}
		if diff := cmp.Diff(group.Members, Members(config)); diff != "" {
			t.Errorf("group %s: annotation differs from members:\n%s", group.Name, diff)
		}
		if len(config.GetOwnerReferences()) != len(group.Members) {
			t.Errorf("group %s: %d owners of %d members", group.Name, len(config.GetOwnerReferences()), len(group.Members))
		}
		if webhooks := Webhooks(config); len(webhooks) != 1 {
			t.Errorf("group %s: %d webhooks", group.Name, len(webhooks))
		} else {
			checkWebhook(t, group, &webhooks[0])
		}
	}
}

func checkWebhook(t testing.TB, group Group, webhook *webhook) {
	t.Helper()
	if msgs := utilvalidation.IsFullyQualifiedDomainName(nil, webhook.Name); len(msgs) > 0 {
		t.Errorf("webhook %s: %v", webhook.Name, msgs)
	}
	for i := range webhook.Rules {
		rule := &webhook.Rules[i]
		if rule.Scope == nil {
			t.Errorf("group %s: a rule has no scope", group.Name)
		}
		errs := validation.CheckRule(rule, nil)
		if len(errs) > 0 {
			t.Errorf("group %s: invalid rules: %v", group.Name, errs.ToAggregate())
		}
		if group.Phase == PhaseMutate && group.Path != "" && operationsOf(rule.Operations)&^opMutable != 0 {
			t.Errorf("group %s mutates on %v", group.Name, rule.Operations)
		}
	}
	if webhook.FailurePolicy == nil || webhook.MatchPolicy == nil || webhook.NamespaceSelector == nil || webhook.ObjectSelector == nil ||
		webhook.TimeoutSeconds == nil || webhook.SideEffects == nil || len(webhook.AdmissionReviewVersions) == 0 ||
		(webhook.ReinvocationPolicy == nil) != (group.Phase == PhaseValidate) {
		t.Errorf("group %s: a field is not set", group.Name)
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
		if r.IntN(4) == 0 {
			randomCritical(r, &policies[i].Spec)
		}
		randomPhases(r, &policies[i].Spec)
		randomConditions(r, &policies[i].Spec)
		if errs := validation.Check(policies[i]); len(errs) > 0 {
			panic(fmt.Sprintf("invalid random policy: %v", errs.ToAggregate()))
		}
	}
	return policies
}

// randomPhases gives a policy mutations, validations or both, and random bindings.
func randomPhases(r *rand.Rand, spec *v1alpha1.WebhookPolicySpec) {
	policy := &v1alpha1.WebhookPolicy{Spec: *spec}
	if spec.Validations = []v1alpha1.Validation{{Expression: "true"}}; r.IntN(2) == 0 {
		doingBoth(policy)
		spec.Mutations = policy.Spec.Mutations
		if r.IntN(2) == 0 {
			spec.Validations = nil
		}
		spec.Order = pick(r, nil, nil, nil, new(int32(0)), new(int32(1000)))
		spec.ReinvocationPolicy = pick(r, nil, nil, nil, new(admissionregistrationv1.NeverReinvocationPolicy), new(admissionregistrationv1.IfNeededReinvocationPolicy))
		for !slices.ContainsFunc(spec.MatchConstraints.ResourceRules, isForMutations) {
			spec.MatchConstraints.ResourceRules = append(spec.MatchConstraints.ResourceRules, randomRule(r))
		}
	}
	if r.IntN(4) == 0 && len(spec.Mutations) == 0 && spec.TemplateOperation() != "" {
		spec.PodTemplates = &v1alpha1.PodTemplates{}
	}
	if r.IntN(8) == 0 {
		spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	}
	for i := range pick(r, 0, 0, 1, 1, 1, 2) {
		b := v1alpha1.Binding{Name: fmt.Sprintf("b%d", i), ValidationActions: []admissionregistrationv1.ValidationAction{
			pick(r, admissionregistrationv1.Audit, admissionregistrationv1.Warn, admissionregistrationv1.Deny, admissionregistrationv1.Deny, admissionregistrationv1.Deny),
		}}
		if r.IntN(4) > 0 {
			b.MatchResources = &admissionregistrationv1.MatchResources{
				NamespaceSelector: randomSelector(r, pick(r, "tier", "rank"), "prod", "a"),
				ObjectSelector:    randomSelector(r, pick(r, "app", "tier"), "plain", "prod"),
			}
		}
		if b.MatchResources != nil && r.IntN(4) == 0 {
			b.MatchResources.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{randomRule(r)}
		}
		spec.Bindings = append(spec.Bindings, b)
	}
}

// randomCritical allows and names random critical resources.
func randomCritical(r *rand.Rand, spec *v1alpha1.WebhookPolicySpec) {
	spec.AllowCriticalResources = true
	for range 1 + r.IntN(2) {
		spec.MatchConstraints.ResourceRules = append(spec.MatchConstraints.ResourceRules, pick(r,
			ruleOf("", "events"), ruleOf("events.k8s.io", "events"), eventsRule(), ruleOf("coordination.k8s.io", "leases"),
			ruleOf("coordination.k8s.io", "leases", "leases/status"), ruleOf("authentication.k8s.io", "tokenreviews"),
			ruleOf("authorization.k8s.io", "subjectaccessreviews", "localsubjectaccessreviews")))
	}
}

// randomConditions adds matchConditions. Some of them fail for some requests.
func randomConditions(r *rand.Rand, spec *v1alpha1.WebhookPolicySpec) {
	for i := range pick(r, 0, 0, 0, 0, 1, 2) {
		spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{
			Name: fmt.Sprintf("c%d", i),
			Expression: pick(r, `request.operation != "UPDATE"`, `object.metadata.labels.app == "prod"`, `!("system:nodes" in request.userInfo.groups)`,
				`request.name.startsWith("th") || request.subResource == "status"`, `!(has(oldObject.metadata) && oldObject.metadata.labels["app"] != "plain")`,
				`object.metadata.labels.all(k, k != "tier")`, `request.namespace in ["prod", "test"]`),
		})
	}
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

// randomRule returns a valid rule.
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
		policy := policyFor("p", "pods")
		policy.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{rule}
		if len(validation.Check(policy)) == 0 {
			return rule
		}
	}
}

func isForMutations(rule admissionregistrationv1.NamedRuleWithOperations) bool {
	return operationsOf(rule.Operations)&opMutable != 0
}
