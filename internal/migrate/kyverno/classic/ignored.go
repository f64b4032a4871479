package classic

import (
	"slices"
	"strings"
)

// Notes about policies with the failurePolicy Ignore.
const (
	noteAbsentAnchor = "a pattern that fails denies also if the field of one of its anchors is absent: Kyverno takes this for " +
		"an error, and lets it pass because failurePolicy is Ignore"
	noteIgnoredMutation = "if a mutation fails, the others of the policy are applied: with the failurePolicy Ignore, Kyverno " +
		"applies none of them"
)

// ignoresErrors reports whether what cannot be evaluated has no effect.
func (s *policySpec) ignoresErrors() bool { return strings.EqualFold(s.failurePolicy(), "Ignore") }

// noteIgnoredErrors reports what Kyverno takes for an error, which failurePolicy ignores.
func (v *ruleConverter) noteIgnoredErrors() {
	s := &v.policy.Spec
	if !s.ignoresErrors() {
		return
	}
	if c := v.rule.Validate; c != nil && (hasConditionAnchor(c.Pattern) || eachPattern(c.ForEach, hasConditionAnchor)) {
		v.notes = append(v.notes, noteAbsentAnchor)
	}
	mutations := 0
	for i := range s.Rules {
		if s.Rules[i].Mutate != nil {
			mutations++
		}
	}
	if v.rule.Mutate != nil && mutations > 1 {
		v.notes = append(v.notes, noteIgnoredMutation)
	}
}

// eachPattern reports whether a pattern for elements has some property.
func eachPattern(checks []forEach, has func(any) bool) bool {
	return slices.ContainsFunc(checks, func(f forEach) bool { return has(f.Pattern) || eachPattern(f.ForEach, has) })
}

// hasConditionAnchor reports whether a pattern has an anchor whose field Kyverno looks for: () or ^().
func hasConditionAnchor(pattern any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		for key, value := range p {
			anchored := strings.HasSuffix(key, ")") && (strings.HasPrefix(key, "(") || strings.HasPrefix(key, "^("))
			if anchored || hasConditionAnchor(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(p, hasConditionAnchor)
	}
	return false
}
