package registration

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unique"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func samePolicies(n int, resources ...string) []*v1alpha1.WebhookPolicy {
	out := make([]*v1alpha1.WebhookPolicy, n)
	for i := range out {
		out[i] = policyFor(fmt.Sprintf("%s-%d", strings.ReplaceAll(resources[i%len(resources)], "*", "any"), i), resources[i%len(resources)])
	}
	return out
}

func TestFullGroupKeepsItsName(t *testing.T) {
	one, full := planOf(samePolicies(1, "pods")...), planOf(samePolicies(MaxMembers, "pods")...)
	if len(full.Groups) != 1 || full.Groups[0].Name != one.Groups[0].Name {
		t.Errorf("%d policies: groups %v, want only %s", MaxMembers, names(full), one.Groups[0].Name)
	}
	over := planOf(samePolicies(MaxMembers+1, "pods")...)
	if len(over.Groups) != 2 {
		t.Errorf("%d policies: groups %v, want two", MaxMembers+1, names(over))
	}
	checkConfigurations(t, over)
}

func names(plan Plan) []string {
	var out []string
	for _, group := range plan.Groups {
		out = append(out, group.Name)
	}
	return out
}

// TestRequestMatchesFewGroups divides 5,000 policies for 50 resources. All policies
// for one resource fit into one group. A request for it matches this group and the
// one of the policies for all resources.
func TestRequestMatchesFewGroups(t *testing.T) {
	var resources []string
	for i := range 50 {
		resources = append(resources, fmt.Sprintf("kind%ds", i))
	}
	policies := append(samePolicies(5000, resources...), samePolicies(100, "*")...)
	plan := planOf(policies...)
	checkConfigurations(t, plan)
	if len(plan.Groups) < 11 || len(plan.Groups) > 40 {
		t.Errorf("%d groups for %d policies", len(plan.Groups), len(policies))
	}
	groupsOf := map[string]map[string]bool{}
	for _, group := range plan.Groups {
		for _, member := range group.Members {
			resource, _, _ := strings.Cut(member, "-")
			if groupsOf[resource] == nil {
				groupsOf[resource] = map[string]bool{}
			}
			groupsOf[resource][group.Name] = true
		}
	}
	for resource, groups := range groupsOf {
		if len(groups) != 1 {
			t.Errorf("the policies for %s are in %d groups, want 1", resource, len(groups))
		}
	}
}

// TestAddingToADividedGroup adds policies to 5,000, one at a time. Each changes
// one configuration, or divides a full one.
func TestAddingToADividedGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	entries := make([]Entry, 0, 5000)
	for _, policy := range samePolicies(5000, "pods", "pods", "services", "secrets", "configmaps", "*") {
		entries = append(entries, Prepare(policy))
	}
	build := func() Plan { return Build(Input{Entries: entries, Endpoint: testService}) }
	before := build()
	divided := 0
	for i := range 30 {
		added := policyFor(fmt.Sprintf("added-%d", i), pick(r, "pods", "services", "nodes", "*"))
		entries = append(entries, Prepare(added))
		after := build()
		changed := differing(t, before, after)
		own := after.GroupsOf(PhaseValidate, added.Name)
		if len(own) != 1 {
			t.Fatalf("%s is in groups %v", added.Name, own)
		}
		if !slices.Equal(changed, own) {
			divided++
			checkDivided(t, before, after, changed, added.Name)
		}
		before = after
	}
	if divided > 3 {
		t.Errorf("%d of 30 additions divided a group", divided)
	}
}

func checkDivided(t *testing.T, before, after Plan, changed []string, added string) {
	t.Helper()
	members := func(p Plan) (groups int, out []string) {
		for _, group := range p.Groups {
			if slices.Contains(changed, group.Name) {
				groups++
				out = append(out, group.Members...)
			}
		}
		return groups, out
	}
	groupsBefore, was := members(before)
	_, is := members(after)
	if groupsBefore != 1 || len(was) != MaxMembers || !slices.Equal(sortedSet(append(was, added)), sortedSet(is)) {
		t.Errorf("adding %s changed %v", added, changed)
	}
}

func TestLargeRulesDivideAGroup(t *testing.T) {
	policies := samePolicies(100, "pods")
	for i, policy := range policies {
		rule := &policy.Spec.MatchConstraints.ResourceRules[0].Rule
		for j := range 900 {
			rule.Resources = append(rule.Resources, fmt.Sprintf("resource-of-some-length-%d-%d", i, j))
		}
	}
	plan := planOf(policies...)
	checkConfigurations(t, plan)
	for _, group := range plan.Groups {
		if size := len(planJSON(t, Plan{Groups: []Group{group}})); size > 1<<20 {
			t.Errorf("group %s has %d bytes", group.Name, size)
		}
	}
	if len(plan.Groups) < 2 {
		t.Errorf("the group is not divided")
	}
}

func TestLongestNameIsALabel(t *testing.T) {
	long := strings.Repeat("1", hashBits)
	tests := map[string]struct {
		phase        Phase
		prefix, name string
		want         string
	}{
		"short":          {phase: PhaseValidate, prefix: "001", name: "ignore-30s-0123456789abcdef", want: "ignore-30s-0123456789abcdef-9"},
		"long":           {phase: PhaseValidate, prefix: long, name: "ignore-30s-0123456789abcdef", want: "ignore-30s-0123456789abcdef-1ffffffffffffffff"},
		"short, mutates": {phase: PhaseMutate, prefix: "001", name: "1000-ignore-30s-0123456789abcdef", want: "1000-ignore-30s-0123456789abcdef-001"},
		"long, mutates": {
			phase: PhaseMutate, prefix: long[:maxSplits], name: "1000-ignore-30s-0123456789abcdef",
			want: "1000-ignore-30s-0123456789abcdef-111111111111111111111111111111",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := memberSet{prefix: tc.prefix, members: []*membership{{group: unique.Make(groupID{name: tc.name}), phase: tc.phase}}}
			if got := b.name(); got != tc.want {
				t.Errorf("name = %s, want %s", got, tc.want)
			}
			if msgs := validation.IsDNS1123Label(b.name()); len(msgs) > 0 {
				t.Errorf("%s: %v", b.name(), msgs)
			}
		})
	}
}

// applied returns the policies of a plan in the order in which their mutations are
// applied: API servers sort configurations by name.
func applied(plan Plan) []string {
	groups := map[string][]string{}
	for _, group := range plan.Groups {
		if group.Phase == PhaseMutate {
			groups[group.Configuration.GetName()] = group.Members
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[name]...)
	}
	return out
}

// namedPolicies returns mutating policies with random names with a common prefix.
func namedPolicies(r *rand.Rand, n int, changes ...func(*v1alpha1.WebhookPolicy)) []*v1alpha1.WebhookPolicy {
	seen := set{}
	var out []*v1alpha1.WebhookPolicy
	for len(out) < n {
		name := "team-platform-" + strings.Repeat("x", r.IntN(40)) + fmt.Sprint(r.IntN(10*n))
		if !seen.has(name) {
			seen[name] = struct{}{}
			out = append(out, policyFor(name, pick(r, "pods", "services", "*"), append(changes, mutating)...))
		}
	}
	return out
}

func TestDividedMutationsKeepTheirOrder(t *testing.T) {
	for _, n := range []int{MaxMembers, MaxMembers + 1, 1500, 6000} {
		t.Run(fmt.Sprintf("%d policies", n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(n), 9))
			first, second := namedPolicies(r, n, order(7)), namedPolicies(r, n, order(1000))
			var want []string
			for _, policies := range [][]*v1alpha1.WebhookPolicy{first, second} {
				var names []string
				for _, p := range policies {
					names = append(names, p.Name)
				}
				want = append(want, sortedSet(names)...)
			}
			for _, p := range second { // names are unique
				p.Name = "z-" + p.Name
			}
			for i := n; i < len(want); i++ {
				want[i] = "z-" + want[i]
			}
			plan := planOf(append(second, first...)...)
			checkConfigurations(t, plan)
			if diff := cmp.Diff(want, applied(plan)); diff != "" {
				t.Errorf("order of application (-want +got):\n%s", diff)
			}
			if got, most := len(plan.Groups), 2*(1+3*((n-1)/MaxMembers)); got > most {
				t.Errorf("%d groups for twice %d policies, want %d at most", got, n, most)
			}
		})
	}
}

// TestAddingToDividedMutations adds policies to 3,000, one at a time. Most of them
// change one configuration.
func TestAddingToDividedMutations(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	policies := namedPolicies(r, 3000)
	before := planOf(policies...)
	changes := map[int]int{}
	for i := range 60 {
		added := policyFor(fmt.Sprintf("team-platform-%d-added", r.IntN(30000)+i), "pods", mutating)
		policies = append(policies, added)
		after := planOf(policies...)
		changed := differing(t, before, after)
		changes[len(changed)]++
		if own := after.GroupsOf(PhaseMutate, added.Name); len(own) != 1 || !slices.Contains(changed, own[0]) {
			t.Fatalf("%s is in groups %v, changed are %v", added.Name, own, changed)
		}
		before = after
	}
	if changes[1] < 55 {
		t.Errorf("number of changed configurations: number of additions: %v", changes)
	}
}

// TestUnequalPartsFit divides policies whose names have ascending hashes, so that
// each division by hash separates one policy.
func TestUnequalPartsFit(t *testing.T) {
	policies := namedPolicies(rand.New(rand.NewPCG(4, 9)), 20_000)
	members := make([]*membership, len(policies))
	hashes := make([]bucketHash, len(policies))
	for i, p := range policies {
		members[i] = &Prepare(p).memberships[0]
		hashes[i] = members[i].hash
	}
	slices.SortFunc(members, func(a, b *membership) int { return strings.Compare(a.policy, b.policy) })
	slices.SortFunc(hashes, func(a, b bucketHash) int { return bytes.Compare(a.nameHash(), b.nameHash()) })
	for i, m := range members {
		m.hash = hashes[i]
	}
	var got []string
	last := ""
	for _, b := range divide(members) {
		if len(b.members) > MaxMembers || len(b.prefix) > maxSplits {
			t.Errorf("part %s has %d policies", b.prefix, len(b.members))
		}
		if b.name() <= last {
			t.Errorf("part %s does not sort after %s", b.name(), last)
		}
		last = b.name()
		for _, m := range b.members {
			got = append(got, m.policy)
		}
	}
	if !slices.IsSorted(got) || len(got) != len(policies) {
		t.Errorf("%d policies of %d, sorted: %t", len(got), len(policies), slices.IsSorted(got))
	}
}
