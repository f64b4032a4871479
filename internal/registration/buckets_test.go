package registration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

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

// TestRequestMeetsFewGroups divides 5,000 policies for 50 resources. All that
// name one resource fit into one group, so a request for it meets no other but
// those of the policies for any resource.
func TestRequestMeetsFewGroups(t *testing.T) {
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
	holding := map[string]map[string]bool{}
	for _, group := range plan.Groups {
		for _, member := range group.Members {
			resource, _, _ := strings.Cut(member, "-")
			if holding[resource] == nil {
				holding[resource] = map[string]bool{}
			}
			holding[resource][group.Name] = true
		}
	}
	for resource, groups := range holding {
		if len(groups) != 1 {
			t.Errorf("the policies for %s are in %d groups, want 1", resource, len(groups))
		}
	}
}

// TestAddingToADividedGroup adds policies to 5,000, one at a time. Each changes
// one configuration, or divides one that was full.
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
		own := after.GroupsOf(added.Name)
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
	b := bucket{prefix: strings.Repeat("1", addressBits), entries: []*Entry{{groupName: "ignore-30s-0123456789abcdef"}}}
	if msgs := validation.IsDNS1123Label(b.name()); len(msgs) > 0 {
		t.Errorf("%s: %v", b.name(), msgs)
	}
	if got, want := (bucket{prefix: "001", entries: b.entries}).name(), "ignore-30s-0123456789abcdef-9"; got != want {
		t.Errorf("name = %s, want %s", got, want)
	}
}

// TestResourceSignature says which policies stay together longest when their
// group is divided.
func TestResourceSignature(t *testing.T) {
	tests := map[string]struct {
		resources []string
		want      string
	}{
		"one":               {resources: []string{"pods"}, want: "pods"},
		"subresources":      {resources: []string{"pods/exec", "pods", "pods/*"}, want: "pods"},
		"several":           {resources: []string{"services", "pods"}, want: "pods,services"},
		"any":               {resources: []string{"*"}, want: "*"},
		"any, and some":     {resources: []string{"nodes", "*/status"}, want: "*"},
		"any, and all else": {resources: []string{"*/*"}, want: "*"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := everything()
			r.APIGroups, r.Resources = []string{""}, tc.resources
			if got := resourceSignature(plainRules([]rule{r})); got != tc.want {
				t.Errorf("resourceSignature(%v) = %q, want %q", tc.resources, got, tc.want)
			}
		})
	}
}
