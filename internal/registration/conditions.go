package registration

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	conditionName = "matches-policy"

	// maxDelegated is how many groups are made for the sake of conditions that
	// the API server evaluates. Every group is a client of the API server's own,
	// of which it keeps 200. Policies beyond that are called without.
	maxDelegated = 64
)

// delegate has the API server evaluate a condition, if there is one. Mutations get
// none: groups of equal order are called in an order that nobody chooses, and a
// webhook that is left out at first is not invoked again.
func (m *membership) delegate(condition string) {
	if condition == "" {
		return
	}
	local := *m
	m.undelegated = &local
	m.settings.Condition = condition
	m.setKey()
}

// Condition is what the API server is to evaluate for the policy, empty where
// that is nothing.
func (e Entry) Condition() string {
	for i := range e.memberships {
		if condition := e.memberships[i].settings.Condition; condition != "" {
			return condition
		}
	}
	return ""
}

// WithoutCondition is the entry without conditions that the API server evaluates: for a
// policy that answers requests whatever they say, because it is broken.
func (e Entry) WithoutCondition() Entry {
	out := Entry{name: e.name, memberships: slices.Clone(e.memberships)}
	for i := range out.memberships {
		if local := out.memberships[i].undelegated; local != nil {
			out.memberships[i] = *local
		}
	}
	return out
}

// delegatedKeys are the keys of the groups that are made for their conditions. Where
// there are too many, those stay that come first by their hash, so that a policy
// which comes or goes changes one of them at most.
func delegatedKeys(entries []Entry, refused []string) set {
	byHash := map[string]string{}
	for i := range entries {
		for j := range entries[i].memberships {
			m := &entries[i].memberships[j]
			if m.undelegated != nil && !slices.Contains(refused, m.settings.Condition) {
				byHash[m.groupName[strings.LastIndexByte(m.groupName, '-')+1:]] = m.key
			}
		}
	}
	keys := set{}
	for _, hash := range slices.Sorted(maps.Keys(byHash)) {
		if len(keys) == maxDelegated {
			break
		}
		keys[byHash[hash]] = struct{}{}
	}
	return keys
}

// variant is the membership as it stands in a plan with these conditions.
func (m *membership) variant(pushed set) *membership {
	if m.undelegated != nil && !pushed.has(m.key) {
		return m.undelegated
	}
	return m
}

// matchConditions are those of a webhook with these rules.
func matchConditions(rules []admissionregistrationv1.RuleWithOperations, g *guards, s *settings) []admissionregistrationv1.MatchCondition {
	out := g.conditions(rules)
	if s.Condition != "" {
		out = append(out, admissionregistrationv1.MatchCondition{Name: conditionName, Expression: s.Condition})
	}
	return out
}

// ConditionOf is the condition of its policies that a configuration has the API
// server evaluate, empty where there is none.
func ConditionOf(config Configuration) string {
	for _, w := range Webhooks(config) {
		if condition := conditionOf(&w); condition != "" {
			return condition
		}
	}
	return ""
}

func conditionOf(w *webhook) string {
	for _, c := range w.MatchConditions {
		if c.Name == conditionName {
			return c.Expression
		}
	}
	return ""
}
