package registration

import (
	"iter"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/guard"
)

// maxDelegated is the maximum number of groups with a delegated condition. API
// servers make a client for each group and cache 200 clients. The conditions of
// other policies are not delegated.
const maxDelegated = 64

// Condition returns the policy's condition for the API server, empty if there is
// none.
func (e Entry) Condition() string {
	for i := range e.memberships {
		if condition := e.memberships[i].condition; condition != "" {
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
		out.memberships[i] = *out.memberships[i].withoutCondition()
	}
	return out
}

// delegation decides which conditions are delegated. always are the rules of the
// memberships without a condition, by key.
type delegation struct {
	refused []string
	always  map[string][][]ruleUnit
	merged  map[string][]admissionregistrationv1.RuleWithOperations // unions of always
	keys    set
}

// newDelegation selects the keys of groups with a delegated condition. If there are
// more than maxDelegated, it selects them by hash, so that adding or removing a
// policy changes at most one of them.
func newDelegation(entries []Entry, refused []string) *delegation {
	d := &delegation{refused: refused, always: map[string][][]ruleUnit{}, merged: map[string][]admissionregistrationv1.RuleWithOperations{}, keys: set{}}
	for m := range membershipsOf(entries) {
		if !d.mayDelegate(m) {
			m = m.withoutCondition()
			d.always[m.key()] = append(d.always[m.key()], m.units)
		}
	}
	byHash := map[string]string{}
	for m := range membershipsOf(entries) {
		if d.mayDelegate(m) && !d.isCalledAnyway(m) {
			name := m.groupName()
			byHash[name[strings.LastIndexByte(name, '-')+1:]] = m.key()
		}
	}
	for _, hash := range slices.Sorted(maps.Keys(byHash)) {
		if len(d.keys) == maxDelegated {
			break
		}
		d.keys[byHash[hash]] = struct{}{}
	}
	return d
}

// variantsOf returns the memberships of entries with their conditions, if these are delegated.
func variantsOf(entries []Entry, refused []string) []*membership {
	delegated := newDelegation(entries, refused)
	var out []*membership
	for m := range membershipsOf(entries) {
		out = append(out, delegated.variant(m))
	}
	return out
}

func membershipsOf(entries []Entry) iter.Seq[*membership] {
	return func(yield func(*membership) bool) {
		for i := range entries {
			for j := range entries[i].memberships {
				if !yield(&entries[i].memberships[j]) {
					return
				}
			}
		}
	}
}

func (d *delegation) mayDelegate(m *membership) bool {
	return m.undelegated != nil && !slices.Contains(d.refused, m.condition)
}

// isCalledAnyway reports whether the group with the same settings and no condition is
// called for every request that the rules of m match. A group for the condition would
// then save no call, and an outage of Ostiary affects these requests in any case.
func (d *delegation) isCalledAnyway(m *membership) bool {
	key := m.undelegated.key()
	if len(d.always[key]) == 0 {
		return false
	}
	rules, ok := d.merged[key]
	if !ok {
		rules = union(d.always[key]...)
		d.merged[key] = rules
	}
	return covers(rules, m.units)
}

// variant returns the membership with its condition if that is delegated, and
// otherwise without it.
func (d *delegation) variant(m *membership) *membership {
	if d.mayDelegate(m) && d.keys.has(m.key()) && !d.isCalledAnyway(m) {
		return m
	}
	return m.withoutCondition()
}

func (m *membership) withoutCondition() *membership {
	if m.undelegated != nil {
		return m.undelegated
	}
	return m
}

// matchConditions returns the matchConditions of a webhook with these rules.
func matchConditions(rules []admissionregistrationv1.RuleWithOperations, g *guards, s *settings) []admissionregistrationv1.MatchCondition {
	out := g.conditions(rules)
	if s.Except != "" {
		out = append(out, guard.OtherVersions(s.Except))
	}
	if s.Condition != "" {
		out = append(out, admissionregistrationv1.MatchCondition{Name: guard.DelegatedCondition, Expression: s.Condition})
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
		if c.Name == guard.DelegatedCondition {
			return c.Expression
		}
	}
	return ""
}
