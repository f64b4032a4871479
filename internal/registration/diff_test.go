package registration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

type config = admissionregistrationv1.ValidatingWebhookConfiguration

// policyFor is a policy on the creation of one core resource.
func policyFor(name, resource string, changes ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	policy := &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.WebhookPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}}},
		}},
	}
	for _, change := range changes {
		change(policy)
	}
	return policy
}

func timeout(seconds int32) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.TimeoutSeconds = &seconds }
}

func planOf(policies ...*v1alpha1.WebhookPolicy) Plan {
	return Build(Input{Policies: policies, Endpoint: testService, CABundle: []byte("bundle")})
}

// observe is what an informer shows after a plan has been applied.
func observe(plan Plan) []*config {
	var out []*config
	for _, group := range plan.Groups {
		out = append(out, stored(group.Configuration))
	}
	return out
}

func stored(applied *config) *config {
	have := applied.DeepCopy()
	have.TypeMeta = metav1.TypeMeta{}
	have.UID = types.UID("uid-" + have.Name)
	have.ResourceVersion, have.Generation = "7", 2
	have.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager}}
	return have
}

func actions(changes Changes) []string {
	var out []string
	for _, c := range changes.Apply {
		out = append(out, fmt.Sprintf("apply %ds [%s]", *c.Webhooks[0].TimeoutSeconds, c.Annotations[AnnotationMembers]))
	}
	for _, ref := range changes.Delete {
		out = append(out, "delete "+strings.TrimPrefix(ref.Name, ConfigurationPrefix)[:len("fail-5s")])
	}
	return out
}

func TestDiffOrder(t *testing.T) {
	base := planOf(policyFor("a", "pods"), policyFor("b", "services"), policyFor("x", "pods", timeout(9)))
	tests := map[string]struct {
		plan Plan
		want []string
	}{
		"nothing changes": {plan: base},
		"one is added": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "services"), policyFor("c", "secrets"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 5s [a,b,c]"},
		},
		"the last of a group goes": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "services")),
			want: []string{"delete fail-9s"},
		},
		"all go": {plan: planOf(), want: []string{"delete fail-5s", "delete fail-9s"}},
		"one moves to a group that exists": {
			plan: planOf(policyFor("a", "pods", timeout(9)), policyFor("b", "services"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 9s [a,x]", "apply 5s [b]"},
		},
		"one moves to a new group, another goes": {
			plan: planOf(policyFor("a", "pods", timeout(1)), policyFor("b", "services")),
			want: []string{"apply 1s [a]", "apply 5s [b]", "delete fail-9s"},
		},
		"two change places": {
			plan: planOf(policyFor("a", "pods", timeout(9)), policyFor("b", "services"), policyFor("x", "pods")),
			want: []string{"apply 5s [a,b,x]", "apply 9s [a,x]", "apply 5s [b,x]", "apply 9s [a]"},
		},
		"one goes, another comes": {
			plan: planOf(policyFor("b", "services"), policyFor("c", "pods"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 5s [b,c]"},
		},
		"one gets other rules": {
			plan: planOf(policyFor("a", "secrets"), policyFor("b", "services"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 5s [a,b]"},
		},
		"the bundle changes": {
			plan: Build(Input{CABundle: []byte("next"), Endpoint: testService, Policies: []*v1alpha1.WebhookPolicy{
				policyFor("a", "pods"), policyFor("b", "services"), policyFor("x", "pods", timeout(9)),
			}}),
			want: []string{"apply 5s [a,b]", "apply 9s [x]"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			observed := observe(base)
			for range 3 {
				slices.Reverse(observed)
				if diff := cmp.Diff(tc.want, actions(Diff(tc.plan, observed))); diff != "" {
					t.Fatalf("Diff (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(observe(base), observed, cmp.Transformer("sort", sorted)); diff != "" {
				t.Errorf("Diff changed what was observed:\n%s", diff)
			}
		})
	}
}

func sorted(in []*config) map[string]config {
	out := map[string]config{}
	for _, c := range in {
		out[c.Name] = *c
	}
	return out
}

func TestDiffRepairs(t *testing.T) {
	plan := planOf(policyFor("a", "pods"), policyFor("b", "services"))
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "inventory", UID: "1"}
	tests := map[string]struct {
		tamper     func(*config)
		wantRepair bool
	}{
		"as applied":                   {tamper: func(*config) {}},
		"a label of others":            {tamper: func(c *config) { c.Labels["team"] = "x" }},
		"an annotation of others":      {tamper: func(c *config) { c.Annotations["note"] = "x" }},
		"an owner of others":           {tamper: func(c *config) { c.OwnerReferences = append([]metav1.OwnerReference{other}, c.OwnerReferences...) }},
		"owners in another order":      {tamper: func(c *config) { slices.Reverse(c.OwnerReferences) }},
		"empty instead of absent":      {tamper: func(c *config) { c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{} }},
		"our label":                    {tamper: func(c *config) { c.Labels[LabelPhase] = "x" }, wantRepair: true},
		"our label removed":            {tamper: func(c *config) { delete(c.Labels, LabelManagedBy) }, wantRepair: true},
		"our annotation":               {tamper: func(c *config) { c.Annotations[AnnotationMembers] = "a" }, wantRepair: true},
		"all metadata":                 {tamper: func(c *config) { c.Labels, c.Annotations, c.OwnerReferences = nil, nil, nil }, wantRepair: true},
		"an owner is missing":          {tamper: func(c *config) { c.OwnerReferences = c.OwnerReferences[1:] }, wantRepair: true},
		"an owner of an earlier life":  {tamper: func(c *config) { c.OwnerReferences[0].UID = "old" }, wantRepair: true},
		"an owner blocks deletion":     {tamper: func(c *config) { c.OwnerReferences[0].BlockOwnerDeletion = new(true) }, wantRepair: true},
		"a policy too many owns it":    {tamper: func(c *config) { c.OwnerReferences = append(c.OwnerReferences, ownerOf("c")) }, wantRepair: true},
		"no webhooks":                  {tamper: func(c *config) { c.Webhooks = nil }, wantRepair: true},
		"a webhook too many":           {tamper: func(c *config) { c.Webhooks = append(c.Webhooks, c.Webhooks[0]) }, wantRepair: true},
		"webhook.name":                 {tamper: func(c *config) { c.Webhooks[0].Name = "a.b.c" }, wantRepair: true},
		"webhook.rules":                {tamper: func(c *config) { c.Webhooks[0].Rules = nil }, wantRepair: true},
		"webhook.rules.scope":          {tamper: func(c *config) { *c.Webhooks[0].Rules[0].Scope = "Cluster" }, wantRepair: true},
		"webhook.failurePolicy":        {tamper: func(c *config) { *c.Webhooks[0].FailurePolicy = "Ignore" }, wantRepair: true},
		"webhook.matchPolicy":          {tamper: func(c *config) { *c.Webhooks[0].MatchPolicy = "Exact" }, wantRepair: true},
		"webhook.timeoutSeconds":       {tamper: func(c *config) { *c.Webhooks[0].TimeoutSeconds = 1 }, wantRepair: true},
		"webhook.namespaceSelector":    {tamper: func(c *config) { c.Webhooks[0].NamespaceSelector = nil }, wantRepair: true},
		"webhook.objectSelector":       {tamper: func(c *config) { c.Webhooks[0].ObjectSelector.MatchLabels = map[string]string{"a": "b"} }, wantRepair: true},
		"webhook.sideEffects":          {tamper: func(c *config) { *c.Webhooks[0].SideEffects = "NoneOnDryRun" }, wantRepair: true},
		"webhook.matchConditions":      {tamper: func(c *config) { c.Webhooks[0].MatchConditions = never() }, wantRepair: true},
		"webhook.reviewVersions":       {tamper: func(c *config) { c.Webhooks[0].AdmissionReviewVersions = []string{"v1beta1"} }, wantRepair: true},
		"webhook.clientConfig.bundle":  {tamper: func(c *config) { c.Webhooks[0].ClientConfig.CABundle = []byte("x") }, wantRepair: true},
		"webhook.clientConfig.service": {tamper: func(c *config) { c.Webhooks[0].ClientConfig.Service.Name = "x" }, wantRepair: true},
		"webhook.clientConfig.path":    {tamper: func(c *config) { *c.Webhooks[0].ClientConfig.Service.Path = "/x" }, wantRepair: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			observed := observe(plan)
			tc.tamper(observed[0])
			got := Diff(plan, observed)
			if !tc.wantRepair {
				if !got.Empty() {
					t.Errorf("Diff = %v, want nothing", actions(got))
				}
				return
			}
			if len(got.Apply) == 0 || len(got.Delete) > 0 {
				t.Fatalf("Diff = %v, want applies only", actions(got))
			}
			if diff := cmp.Diff(plan.Groups[0].Configuration, got.Apply[len(got.Apply)-1]); diff != "" {
				t.Errorf("the last apply is not what is planned:\n%s", diff)
			}
		})
	}
}

func ownerOf(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind, Name: name, UID: types.UID("uid-" + name)}
}

func never() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
}

func TestDiffDeletesOnlyItsOwn(t *testing.T) {
	tests := map[string]struct {
		change func(*config)
		want   []Ref
	}{
		"generated": {
			change: func(*config) {},
			want:   []Ref{{Name: "ostiary-validate-old", UID: "1", ResourceVersion: "2"}},
		},
		"another name":      {change: func(c *config) { c.Name = "ostiary-policies" }},
		"no phase":          {change: func(c *config) { delete(c.Labels, LabelPhase) }},
		"another manager":   {change: func(c *config) { c.Labels[LabelManagedBy] = "Helm" }},
		"deleted already":   {change: func(c *config) { c.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time} }},
		"without any label": {change: func(c *config) { c.Labels = nil }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := &config{ObjectMeta: metav1.ObjectMeta{
				Name: "ostiary-validate-old", UID: "1", ResourceVersion: "2",
				Labels: map[string]string{LabelManagedBy: ManagedBy, LabelPhase: PhaseValidate},
			}}
			tc.change(c)
			got := Diff(planOf(), []*config{c})
			if diff := cmp.Diff(Changes{Delete: tc.want}, got); diff != "" {
				t.Errorf("Diff (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoMomentWithoutEnforcement walks from one random set of policies to
// another, one write at a time, and looks after each whether every policy that
// stands in both is carried.
func TestNoMomentWithoutEnforcement(t *testing.T) {
	widened := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 5))
		before := randomPolicies(r, 40)
		after := changed(r, before)
		target := Build(Input{Policies: after, Endpoint: testService})
		state := sortedPointers(observe(Build(Input{Policies: before, Endpoint: testService})))
		observed := make([]*config, 0, len(state))
		for _, c := range state {
			observed = append(observed, c)
		}
		changes := Diff(target, observed)
		applied := map[string]bool{}
		staying := staying(before, after)
		for _, c := range changes.Apply {
			if applied[c.Name] {
				widened++
			}
			applied[c.Name] = true
			state[c.Name] = stored(c)
			checkEnforced(t, seed, staying, state)
		}
		for _, ref := range changes.Delete {
			delete(state, ref.Name)
			checkEnforced(t, seed, staying, state)
		}
		var end []*config
		for _, c := range state {
			end = append(end, c)
		}
		if rest := Diff(target, end); !rest.Empty() {
			t.Errorf("seed %d: still to do in the end: %v", seed, actions(rest))
		}
	}
	if widened < 10 {
		t.Errorf("only %d configurations were applied twice: the sets differ too little", widened)
	}
}

// changed moves some policies between groups, gives others new rules, and adds
// and removes some.
func changed(r *rand.Rand, before []*v1alpha1.WebhookPolicy) []*v1alpha1.WebhookPolicy {
	var after []*v1alpha1.WebhookPolicy
	for _, policy := range before {
		policy = policy.DeepCopy()
		switch r.IntN(8) {
		case 0:
			continue
		case 1, 2, 3:
			policy.Spec.TimeoutSeconds = pick(r, nil, new(int32(1)), new(int32(30)))
		case 4:
			policy.Spec.MatchConstraints = randomMatch(r)
		}
		after = append(after, policy)
	}
	for i, policy := range randomPolicies(r, 5) {
		policy.Name = fmt.Sprintf("new-%d", i)
		policy.UID = types.UID("uid-" + policy.Name)
		after = append(after, policy)
	}
	return after
}

func sortedPointers(in []*config) map[string]*config {
	out := map[string]*config{}
	for _, c := range in {
		out[c.Name] = c
	}
	return out
}

// staying are the policies that keep their rules.
func staying(before, after []*v1alpha1.WebhookPolicy) []Entry {
	rules := map[string][]atom{}
	for _, policy := range before {
		rules[policy.Name] = Prepare(policy).atoms
	}
	var out []Entry
	for _, policy := range after {
		entry := Prepare(policy)
		if old, ok := rules[entry.name]; ok && slices.Equal(old, entry.atoms) {
			out = append(out, entry)
		}
	}
	return out
}

func checkEnforced(t *testing.T, seed uint64, staying []Entry, state map[string]*config) {
	t.Helper()
	carried := func(entry Entry) bool {
		for _, c := range state {
			if strings.Contains(","+c.Annotations[AnnotationMembers]+",", ","+entry.name+",") && covers(c.Webhooks[0].Rules, entry.atoms) &&
				slices.ContainsFunc(c.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == entry.uid }) {
				return true
			}
		}
		return false
	}
	for _, entry := range staying {
		if !carried(entry) {
			t.Fatalf("seed %d: nothing carries %s for a moment", seed, entry.name)
		}
	}
}

func TestMembers(t *testing.T) {
	var many []string
	for i := range 3 * MaxMembers {
		many = append(many, fmt.Sprintf("p%d", i))
	}
	tests := map[string]struct {
		annotation string
		want       []string
	}{
		"none":             {},
		"one":              {annotation: "a", want: []string{"a"}},
		"dots and dashes":  {annotation: "a.b,a-b", want: []string{"a-b", "a.b"}},
		"edited by people": {annotation: " b , a,,a,\n c", want: []string{"a", "b", "c"}},
		"not names":        {annotation: "A,a/b,-," + strings.Repeat("x", 254) + ",ok", want: []string{"ok"}},
		"too many":         {annotation: strings.Join(many, ","), want: sortedSet(many[:2*MaxMembers])},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := &config{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationMembers: tc.annotation}}}
			if diff := cmp.Diff(tc.want, Members(c)); diff != "" {
				t.Errorf("Members (-want +got):\n%s", diff)
			}
		})
	}
}
