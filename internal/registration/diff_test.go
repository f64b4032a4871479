package registration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// config is a copy of a configuration of either kind, for comparisons and edits.
type config = admissionregistrationv1.MutatingWebhookConfiguration

func view(c Configuration) *config {
	return &config{ObjectMeta: *metadata(c), Webhooks: Webhooks(c)}
}

func edit(c Configuration, change func(*config)) {
	edited := view(c)
	change(edited)
	*metadata(c) = edited.ObjectMeta
	setWebhooks(c, edited.Webhooks)
}

func metadata(c Configuration) *metav1.ObjectMeta {
	switch c := c.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return &c.ObjectMeta
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return &c.ObjectMeta
	}
	panic(fmt.Sprintf("a configuration of type %T", c))
}

// policyFor returns a validating policy for the creation of a core resource, with
// changes.
func policyFor(name, resource string, changes ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	policy := &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: v1alpha1.WebhookPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}}},
		}, Validations: []v1alpha1.Validation{{Expression: "true"}}},
	}
	for _, change := range changes {
		change(policy)
	}
	return policy
}

func timeout(seconds int32) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.TimeoutSeconds = &seconds }
}

func order(n int32) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.Order = &n }
}

// mutating replaces the validations with a mutation.
func mutating(p *v1alpha1.WebhookPolicy) {
	doingBoth(p)
	p.Spec.Validations = nil
}

func doingBoth(p *v1alpha1.WebhookPolicy) {
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[]"}}}
}

func planOf(policies ...*v1alpha1.WebhookPolicy) Plan {
	return Build(Input{Policies: policies, Endpoint: testService, CABundle: []byte("bundle")})
}

// observe returns the configurations of a cache after a plan has been applied.
func observe(plan Plan) []Configuration {
	var out []Configuration
	for _, group := range plan.Groups {
		out = append(out, stored(group.Configuration))
	}
	return out
}

func stored(applied Configuration) Configuration {
	have := clone(applied)
	have.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	have.SetUID(types.UID("uid-" + have.GetName()))
	have.SetResourceVersion("7")
	have.SetGeneration(2)
	have.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: FieldManager}})
	return have
}

// actions returns a short form of changes: mutating configurations with their order,
// all with their timeout.
func actions(changes Changes) []string {
	var out []string
	for _, c := range changes.Apply {
		action := "apply "
		if PhaseOf(c) == PhaseMutate {
			action += "mutate " + strings.TrimPrefix(c.GetName(), PhaseMutate.ConfigurationPrefix())[:len("0500")] + " "
		}
		out = append(out, action+fmt.Sprintf("%ds [%s]", *Webhooks(c)[0].TimeoutSeconds, c.GetAnnotations()[AnnotationMembers]))
	}
	for _, ref := range changes.Delete {
		name := strings.TrimPrefix(ref.Name, ref.Phase.ConfigurationPrefix())
		out = append(out, "delete "+name[:strings.LastIndex(name, "-")])
	}
	return out
}

func TestDiffOrder(t *testing.T) {
	base := planOf(policyFor("a", "pods"), policyFor("b", "services"), policyFor("x", "pods", timeout(9)))
	tests := map[string]struct {
		plan Plan
		want []string
	}{
		"no change": {plan: base},
		"one is added": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "services"), policyFor("c", "secrets"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 5s [a,b,c]"},
		},
		"the last one of a group is removed": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "services")),
			want: []string{"delete fail-9s"},
		},
		"all are removed": {plan: planOf(), want: []string{"delete fail-5s", "delete fail-9s"}},
		"one moves to an existing group": {
			plan: planOf(policyFor("a", "pods", timeout(9)), policyFor("b", "services"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 9s [a,x]", "apply 5s [b]"},
		},
		"one moves to a new group, another is removed": {
			plan: planOf(policyFor("a", "pods", timeout(1)), policyFor("b", "services")),
			want: []string{"apply 1s [a]", "apply 5s [b]", "delete fail-9s"},
		},
		"two swap their groups": {
			plan: planOf(policyFor("a", "pods", timeout(9)), policyFor("b", "services"), policyFor("x", "pods")),
			want: []string{"apply 5s [a,b,x]", "apply 9s [a,x]", "apply 5s [b,x]", "apply 9s [a]"},
		},
		"one is removed, another is added": {
			plan: planOf(policyFor("b", "services"), policyFor("c", "pods"), policyFor("x", "pods", timeout(9))),
			want: []string{"apply 5s [b,c]"},
		},
		"the rules of one change": {
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
		t.Run(name, func(t *testing.T) { checkOrder(t, base, tc.plan, tc.want) })
	}
}

func TestDiffOrderOfPhases(t *testing.T) {
	base := planOf(policyFor("a", "pods"), policyFor("b", "pods", doingBoth), policyFor("m", "pods", mutating), policyFor("x", "pods", timeout(9), doingBoth))
	tests := map[string]struct {
		plan Plan
		want []string
	}{
		"one of both phases is added": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "pods", doingBoth), policyFor("c", "secrets", doingBoth), policyFor("m", "pods", mutating), policyFor("x", "pods", timeout(9), doingBoth)),
			want: []string{"apply mutate 0500 5s [b,c,m]", "apply 5s [a,b,c]"},
		},
		"one of both phases is removed": {
			plan: planOf(policyFor("a", "pods"), policyFor("m", "pods", mutating), policyFor("x", "pods", timeout(9), doingBoth)),
			want: []string{"apply mutate 0500 5s [m]", "apply 5s [a]"},
		},
		"one of both phases is removed, with its groups": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "pods", doingBoth), policyFor("m", "pods", mutating)),
			want: []string{"delete 0500-fail-9s", "delete fail-9s"},
		},
		"one of both phases moves": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "pods", doingBoth, timeout(9)), policyFor("m", "pods", mutating), policyFor("x", "pods", timeout(9), doingBoth)),
			want: []string{"apply mutate 0500 9s [b,x]", "apply 9s [b,x]", "apply mutate 0500 5s [m]", "apply 5s [a]"},
		},
		"two of both phases swap their groups": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "pods", doingBoth, timeout(9)), policyFor("m", "pods", mutating), policyFor("x", "pods", doingBoth)),
			want: []string{
				"apply mutate 0500 5s [b,m,x]", "apply mutate 0500 9s [b,x]", "apply 5s [a,b,x]", "apply 9s [b,x]",
				"apply mutate 0500 5s [m,x]", "apply mutate 0500 9s [b]", "apply 5s [a,x]", "apply 9s [b]",
			},
		},
		"one loses its mutations": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "pods"), policyFor("c", "pods", mutating), policyFor("m", "pods", mutating), policyFor("x", "pods", timeout(9), doingBoth)),
			want: []string{"apply mutate 0500 5s [c,m]"},
		},
		"one gets mutations": {
			plan: planOf(policyFor("a", "pods", doingBoth), policyFor("b", "pods", doingBoth), policyFor("m", "pods", mutating), policyFor("x", "pods", timeout(9), doingBoth)),
			want: []string{"apply mutate 0500 5s [a,b,m]"},
		},
		"the order of one changes": {
			plan: planOf(policyFor("a", "pods"), policyFor("b", "pods", doingBoth), policyFor("m", "pods", mutating, order(7)), policyFor("x", "pods", timeout(9), doingBoth)),
			want: []string{"apply mutate 0007 5s [m]", "apply mutate 0500 5s [b]"},
		},
		"all are removed": {plan: planOf(), want: []string{"delete 0500-fail-5s", "delete 0500-fail-9s", "delete fail-5s", "delete fail-9s"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkOrder(t, base, tc.plan, tc.want) })
	}
}

func checkOrder(t *testing.T, base, plan Plan, want []string) {
	t.Helper()
	observed := observe(base)
	for range 3 {
		slices.Reverse(observed)
		if diff := cmp.Diff(want, actions(Diff(plan, observed))); diff != "" {
			t.Fatalf("Diff (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(ByKey(observe(base)), ByKey(observed)); diff != "" {
		t.Errorf("Diff changed its argument:\n%s", diff)
	}
}

func TestDiffRepairs(t *testing.T) {
	plans := map[Phase]Plan{
		PhaseMutate:   planOf(policyFor("a", "pods", mutating), policyFor("b", "services", mutating)),
		PhaseValidate: planOf(policyFor("a", "pods"), policyFor("b", "services")),
	}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "inventory", UID: "1"}
	tests := map[string]struct {
		tamper     func(*config)
		wantRepair bool
	}{
		"no change":                    {tamper: func(*config) {}},
		"another label":                {tamper: func(c *config) { c.Labels["team"] = "x" }},
		"another annotation":           {tamper: func(c *config) { c.Annotations["note"] = "x" }},
		"another owner":                {tamper: func(c *config) { c.OwnerReferences = append([]metav1.OwnerReference{other}, c.OwnerReferences...) }},
		"owners in another order":      {tamper: func(c *config) { slices.Reverse(c.OwnerReferences) }},
		"empty instead of absent":      {tamper: func(c *config) { c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{} }},
		"label":                        {tamper: func(c *config) { c.Labels[LabelPhase] = "x" }, wantRepair: true},
		"label removed":                {tamper: func(c *config) { delete(c.Labels, LabelManagedBy) }, wantRepair: true},
		"annotation":                   {tamper: func(c *config) { c.Annotations[AnnotationMembers] = "a" }, wantRepair: true},
		"all metadata":                 {tamper: func(c *config) { c.Labels, c.Annotations, c.OwnerReferences = nil, nil, nil }, wantRepair: true},
		"owner removed":                {tamper: func(c *config) { c.OwnerReferences = c.OwnerReferences[1:] }, wantRepair: true},
		"owner with another UID":       {tamper: func(c *config) { c.OwnerReferences[0].UID = "old" }, wantRepair: true},
		"owner.blockOwnerDeletion":     {tamper: func(c *config) { c.OwnerReferences[0].BlockOwnerDeletion = new(true) }, wantRepair: true},
		"another policy as owner":      {tamper: func(c *config) { c.OwnerReferences = append(c.OwnerReferences, ownerOf("c")) }, wantRepair: true},
		"no webhooks":                  {tamper: func(c *config) { c.Webhooks = nil }, wantRepair: true},
		"another webhook":              {tamper: func(c *config) { c.Webhooks = append(c.Webhooks, c.Webhooks[0]) }, wantRepair: true},
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
		for phase, plan := range plans {
			t.Run(string(phase)+" "+name, func(t *testing.T) { checkRepair(t, plan, tc.tamper, tc.wantRepair) })
		}
	}
	t.Run("mutate webhook.reinvocationPolicy", func(t *testing.T) {
		checkRepair(t, plans[PhaseMutate], func(c *config) { *c.Webhooks[0].ReinvocationPolicy = "IfNeeded" }, true)
	})
}

func checkRepair(t *testing.T, plan Plan, tamper func(*config), wantRepair bool) {
	t.Helper()
	observed := observe(plan)
	edit(observed[0], tamper)
	got := Diff(plan, observed)
	if !wantRepair {
		if !got.Empty() {
			t.Errorf("Diff = %v, want nothing", actions(got))
		}
		return
	}
	if len(got.Apply) == 0 || len(got.Delete) > 0 {
		t.Fatalf("Diff = %v, want applies only", actions(got))
	}
	if diff := cmp.Diff(plan.Groups[0].Configuration, got.Apply[len(got.Apply)-1]); diff != "" {
		t.Errorf("the last apply is not the planned configuration:\n%s", diff)
	}
}

func ownerOf(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind, Name: name, UID: types.UID("uid-" + name)}
}

func never() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
}

func TestDiffDeletesOnlyGeneratedConfigurations(t *testing.T) {
	tests := map[string]struct {
		change     func(*config)
		wantDelete bool
	}{
		"generated":       {change: func(*config) {}, wantDelete: true},
		"another name":    {change: func(c *config) { c.Name = "ostiary-policies" }},
		"no phase":        {change: func(c *config) { delete(c.Labels, LabelPhase) }},
		"another phase":   {change: func(c *config) { c.Labels[LabelPhase] = "x" }},
		"another manager": {change: func(c *config) { c.Labels[LabelManagedBy] = "Helm" }},
		"being deleted":   {change: func(c *config) { c.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time} }},
		"no labels":       {change: func(c *config) { c.Labels = nil }},
	}
	for name, tc := range tests {
		for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
			t.Run(string(phase)+" "+name, func(t *testing.T) {
				c := NewConfiguration(phase)
				*metadata(c) = metav1.ObjectMeta{
					Name: "ostiary-" + string(phase) + "-old", UID: "1", ResourceVersion: "2",
					Labels: map[string]string{LabelManagedBy: ManagedBy, LabelPhase: string(phase)},
				}
				edit(c, tc.change)
				var want Changes
				if tc.wantDelete {
					want.Delete = []Ref{{Key: KeyOf(c), UID: "1", ResourceVersion: "2"}}
				}
				if diff := cmp.Diff(want, Diff(planOf(), []Configuration{c})); diff != "" {
					t.Errorf("Diff (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A configuration of one kind can have the name of a generated one of the other kind.
func TestSameNameOfBothKinds(t *testing.T) {
	plan := planOf(policyFor("a", "pods", doingBoth))
	for _, group := range plan.Groups {
		other := NewConfiguration(PhaseMutate)
		if group.Phase == PhaseMutate {
			other = NewConfiguration(PhaseValidate)
		}
		other.SetName(group.Configuration.GetName())
		other.SetLabels(group.Configuration.GetLabels())
		if got := Diff(plan, append(observe(plan), other)); !got.Empty() {
			t.Errorf("%s %s: Diff = %v, want nothing", PhaseOf(other).kind(), other.GetName(), actions(got))
		}
		if _, ok := GroupOf(other); ok {
			t.Errorf("GroupOf returns a group for %s %s", PhaseOf(other).kind(), other.GetName())
		}
	}
}

// TestDiffKeepsPoliciesRegistered applies the changes between random sets of
// policies one by one. After each, policies of both sets must be registered, and
// policies of both phases must not be in the validating phase alone, unless they are
// removed.
func TestDiffKeepsPoliciesRegistered(t *testing.T) {
	widened := map[Phase]int{}
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 5))
		before := randomPolicies(r, 40)
		after := changed(r, before)
		target := Build(Input{Policies: after, Endpoint: testService})
		state := ByKey(observe(Build(Input{Policies: before, Endpoint: testService})))
		changes := Diff(target, slices.Collect(maps.Values(state)))
		applied := map[Key]bool{}
		staying, inBoth := staying(before, after), inBothPhases(after, before)
		for _, c := range changes.Apply {
			if applied[KeyOf(c)] {
				widened[PhaseOf(c)]++
			}
			applied[KeyOf(c)] = true
			state[KeyOf(c)] = stored(c)
			checkStaying(t, seed, staying, state)
			checkBothPhases(t, seed, inBoth, state)
		}
		for _, ref := range changes.Delete {
			delete(state, ref.Key)
			checkStaying(t, seed, staying, state)
			checkBothPhases(t, seed, inBoth, state)
		}
		if rest := Diff(target, slices.Collect(maps.Values(state))); !rest.Empty() {
			t.Errorf("seed %d: changes after the last one: %v", seed, actions(rest))
		}
	}
	if widened[PhaseMutate] < 3 || widened[PhaseValidate] < 10 {
		t.Errorf("%v configurations are applied twice, want more: the sets are too similar", widened)
	}
}

// changed returns the policies with changes: some move between groups or have other
// rules, some are added or removed.
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

// staying returns the memberships of policies of both sets that match the same resources.
func staying(before, after []*v1alpha1.WebhookPolicy) []membership {
	was := map[member]membership{}
	for _, policy := range before {
		for _, m := range Prepare(policy).memberships {
			was[m.member()] = m
		}
	}
	var out []membership
	for _, policy := range after {
		for _, m := range Prepare(policy).memberships {
			earlier, ok := was[m.member()]
			if ok && slices.Equal(earlier.units, m.units) && earlier.settings().MatchPolicy == m.settings().MatchPolicy {
				out = append(out, m)
			}
		}
	}
	return out
}

// inBothPhases returns the policies of both phases, without those that had no
// mutations before.
func inBothPhases(after, before []*v1alpha1.WebhookPolicy) set {
	out := set{}
	for _, p := range after {
		if p.Spec.Mutates() && p.Spec.Validates() {
			out[p.Name] = struct{}{}
		}
	}
	for _, p := range before {
		if !p.Spec.Mutates() {
			delete(out, p.Name)
		}
	}
	return out
}

func checkStaying(t *testing.T, seed uint64, staying []membership, state map[Key]Configuration) {
	t.Helper()
	for _, m := range staying {
		if got := registeredFor(m, state); got != everyRequest {
			t.Fatalf("seed %d: %s is temporarily not registered in phase %s for all requests: %d", seed, m.policy, m.phase, got)
		}
	}
}

// registeredFor returns the requests for which configurations call a policy.
func registeredFor(m membership, state map[Key]Configuration) requests {
	var out requests
	for key, c := range state {
		if key.Phase != m.phase || !strings.Contains(","+c.GetAnnotations()[AnnotationMembers]+",", ","+m.policy+",") ||
			!slices.ContainsFunc(c.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == m.uid }) {
			continue
		}
		w := &Webhooks(c)[0]
		others := hasCondition(w, guard.OtherVersionsCondition)
		switch {
		case covers(w.Rules, m.units) && *w.MatchPolicy == m.settings().MatchPolicy:
			out |= otherRequests
			if !others {
				out |= commonRequests
			}
		case m.separable && !others && covers(w.Rules, unitsInCommonVersion(m.units)):
			out |= commonRequests
		}
	}
	return out
}

func checkBothPhases(t *testing.T, seed uint64, inBoth set, state map[Key]Configuration) {
	t.Helper()
	members := map[Phase]set{PhaseMutate: {}, PhaseValidate: {}}
	for key, c := range state {
		for _, name := range Members(c) {
			members[key.Phase][name] = struct{}{}
		}
	}
	for name := range inBoth {
		if members[PhaseValidate].has(name) && !members[PhaseMutate].has(name) {
			t.Fatalf("seed %d: %s is temporarily in the validating phase alone", seed, name)
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
		"none":                   {},
		"one":                    {annotation: "a", want: []string{"a"}},
		"dots and dashes":        {annotation: "a.b,a-b", want: []string{"a-b", "a.b"}},
		"spaces and empty names": {annotation: " b , a,,a,\n c", want: []string{"a", "b", "c"}},
		"invalid names":          {annotation: "A,a/b,-,-a,a-," + strings.Repeat("x", 254) + ",ok", want: []string{"ok"}},
		"too many":               {annotation: strings.Join(many, ","), want: sortedSet(many[:2*MaxMembers])},
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
