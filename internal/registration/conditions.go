package registration

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	conditionName = "matches-policy"

	// maxDelegated is the maximum number of groups with a delegated condition. API
	// servers make a client for each group and cache 200 clients. The conditions of
	// other policies are not delegated.
	maxDelegated = 64
)

// delegate delegates a condition to the API server, unless it is empty. It is not
// for mutations: API servers do not reinvoke a webhook that they did not call the
// first time, and a separate group changes the order of mutations.
func (m *membership) delegate(condition string) {
	if condition == "" {
		return
	}
	local := *m
	m.undelegated = &local
	m.settings.Condition = condition
	m.setKey()
}

// Condition returns the policy's condition for the API server, empty if there is
// none.
func (e Entry) Condition() string {
	for i := range e.memberships {
		if condition := e.memberships[i].settings.Condition; condition != "" {
			return condition
		}
	}
	return ""
}

// WithoutCondition returns the entry without a delegated condition. It is for a
// broken policy, whose error is the response to all requests.
func (e Entry) WithoutCondition() Entry {
	out := Entry{name: e.name, memberships: slices.Clone(e.memberships)}
	for i := range out.memberships {
		if local := out.memberships[i].undelegated; local != nil {
			out.memberships[i] = *local
		}
	}
	return out
}

// delegatedKeys returns the keys of the groups with a delegated condition. If there
// are more than maxDelegated, it selects them by hash, so that adding or removing a
// policy changes at most one of them.
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

// variant returns the membership with its condition if that is delegated, and
// otherwise without it.
func (m *membership) variant(delegated set) *membership {
	if m.undelegated != nil && !delegated.has(m.key) {
		return m.undelegated
	}
	return m
}

// matchConditions returns the matchConditions of a webhook with these rules.
func matchConditions(rules []admissionregistrationv1.RuleWithOperations, g *guards, s *settings) []admissionregistrationv1.MatchCondition {
	out := g.conditions(rules)
	if s.Condition != "" {
		out = append(out, admissionregistrationv1.MatchCondition{Name: conditionName, Expression: s.Condition})
	}
	return out
}

// ConditionOf returns the delegated condition in a configuration, empty if there is
// none.
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
