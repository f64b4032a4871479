package registration

import (
	"iter"
	"slices"
	"strings"
	"unique"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/guard"
)

// commonVersion is the version in which clients send almost all requests, and which the
// rules of almost all policies contain.
const commonVersion = "v1"

// separation decides which policies are in two call groups instead of one: a group for
// requests in commonVersion, and one for all other requests. Policies that differ only in
// the versions of their rules, such as "*" and "v1", then share the first group, so a request
// in commonVersion costs one call.
//
// Which requests a policy gets, and in which version, stays the same, whatever versions API
// servers serve, now or later, because the two groups divide requests by what the client
// sent:
//
//   - The group for commonVersion has matchPolicy Exact and only this version in its rules.
//     API servers never convert a request for it. Every rule of its policies has this version
//     or "*", so without it they would get the same objects.
//   - The other group has the rules and the matchPolicy of the policies, and a match condition
//     that excludes requests in commonVersion. Requests in other versions, also those of which
//     Ostiary does not know, are matched and converted as without the first group.
//
// A condition costs API servers less than a call, but more than nothing. Policies of a group
// are therefore separated only if they can share requests with policies of another group, all
// of them or none, so that no request costs more calls than without.
type separation struct {
	candidates []candidate
	parts      groupParts
	// called are the policies without a condition, by the group for commonVersion.
	called map[groupHandle]*alwaysCalled
	// groups are the groups that could have the same one for commonVersion, with the
	// resources for which they are called.
	groups map[groupHandle]map[groupHandle]reach
	// separated has those that have it.
	separated map[separableGroup]bool
}

// candidate is a membership, and the one that can be in a group for commonVersion: nil, the
// same, or the same without a condition.
type candidate struct{ whole, common *membership }

// separableGroup is a group with its possible group for commonVersion.
type separableGroup struct{ common, group groupHandle }

// groupParts has the two groups into which each group can be separated.
type groupParts map[groupHandle]separateGroups

// separateGroups are the groups for requests in commonVersion and in other versions.
type separateGroups struct{ common, others groupHandle }

// alwaysCalled are the rules for which a group is called whatever its other members are.
type alwaysCalled struct {
	units  [][]ruleUnit
	merged []admissionregistrationv1.RuleWithOperations // nil before the first use
}

// isSeparable reports whether requests in commonVersion reach a policy without conversion.
// Events do not: they exist in two API groups.
func isSeparable(s *settings, rules []admissionregistrationv1.RuleWithOperations) bool {
	return s.MatchPolicy == admissionregistrationv1.Equivalent && !slices.Contains(s.Critical, guard.CoreEvents) &&
		len(rules) > 0 && !slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return !slices.Contains(r.APIVersions, commonVersion) && !slices.Contains(r.APIVersions, wildcard)
	})
}

// inCommonVersion returns the settings of the group for requests in commonVersion. Policies
// with matchPolicy Exact for this version have the same.
func (s *settings) inCommonVersion() settings {
	out := *s
	out.Versions = commonVersion
	out.MatchPolicy = admissionregistrationv1.Exact
	return out
}

// inOtherVersions returns the settings of the group for all other requests.
func (s *settings) inOtherVersions() settings {
	out := *s
	out.Except = commonVersion
	return out
}

// inGroup returns the membership in another group.
func (m *membership) inGroup(group groupHandle) *membership {
	out := *m
	out.group = group
	return &out
}

// inCommonVersion returns the membership for requests in commonVersion, in the same group.
func (m *membership) inCommonVersion() *membership {
	out := *m
	out.ordered = nil
	out.units = unitsInCommonVersion(m.units)
	return &out
}

func unitsInCommonVersion(units []ruleUnit) []ruleUnit {
	out := slices.Clone(units)
	for i := range out {
		out[i].versions = commonVersion
	}
	return out
}

func newSeparation(variants []*membership) *separation {
	s := &separation{
		parts:     groupParts{},
		called:    map[groupHandle]*alwaysCalled{},
		groups:    map[groupHandle]map[groupHandle]reach{},
		separated: map[separableGroup]bool{},
	}
	s.findParts(variants)
	s.findCalled(variants)
	for _, m := range variants {
		s.candidates = append(s.candidates, candidate{m, s.commonOf(m)})
	}
	if s.findGroups() {
		s.findReach()
		s.decide()
	}
	return s
}

// findParts finds the parts of all groups that can be separated, with and without a condition.
func (s *separation) findParts(variants []*membership) {
	for _, m := range variants {
		for ; m != nil && m.separable; m = m.undelegated {
			if _, known := s.parts[m.group]; known {
				continue
			}
			whole := m.settings()
			common := whole.inCommonVersion()
			others := whole.inOtherVersions()
			s.parts[m.group] = separateGroups{unique.Make(common.group()), unique.Make(others.group())}
		}
	}
}

// memberships returns both memberships of separated policies, and the only one of the others.
func (s *separation) memberships() iter.Seq[*membership] {
	return func(yield func(*membership) bool) {
		for _, c := range s.candidates {
			memberships := []*membership{c.whole}
			if common := s.groupOf(c); s.separated[separableGroup{common, c.whole.group}] {
				memberships = []*membership{
					c.common.inCommonVersion().inGroup(common),
					c.whole.inGroup(s.parts[c.whole.group].others),
				}
			}
			for _, m := range memberships {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// groupOf returns the group for commonVersion in which a candidate can be, zero if there is
// none.
func (s *separation) groupOf(c candidate) groupHandle {
	if c.common == nil {
		return groupHandle{}
	}
	return s.parts[c.common.group].common
}

// findCalled finds the policies for which a group for commonVersion is always called.
func (s *separation) findCalled(variants []*membership) {
	for _, m := range variants {
		if !m.separable || m.condition != "" {
			continue
		}
		common := s.parts[m.group].common
		if s.called[common] == nil {
			s.called[common] = &alwaysCalled{}
		}
		s.called[common].units = append(s.called[common].units, m.units)
	}
}

// covers reports whether the group is called for every request in commonVersion that matches.
func (a *alwaysCalled) covers(m *membership) bool {
	if a.merged == nil {
		for i, units := range a.units {
			a.units[i] = unitsInCommonVersion(units)
		}
		a.merged = union(a.units...)
	}
	return covers(a.merged, unitsInCommonVersion(m.units))
}

// commonOf returns the membership that can be in a group for commonVersion, nil if none can.
// A condition is left out if policies without one need the call in any case, as in a group
// that is not separated.
func (s *separation) commonOf(m *membership) *membership {
	if !m.separable {
		return nil
	}
	if m.undelegated != nil {
		if called := s.called[s.parts[m.undelegated.group].common]; called != nil && called.covers(m) {
			return m.undelegated
		}
	}
	return m
}

// findGroups reports whether several groups could have the same group for commonVersion.
func (s *separation) findGroups() bool {
	several := false
	for _, c := range s.candidates {
		if c.common == nil {
			continue
		}
		common := s.groupOf(c)
		groups := s.groups[common]
		if groups == nil {
			groups = map[groupHandle]reach{}
			s.groups[common] = groups
		}
		if _, known := groups[c.whole.group]; !known {
			groups[c.whole.group] = reach{}
		}
		several = several || len(groups) > 1
	}
	return several
}

func (s *separation) findReach() {
	for _, c := range s.candidates {
		if c.common == nil {
			continue
		}
		if groups := s.groups[s.groupOf(c)]; len(groups) > 1 {
			groups[c.whole.group].add(c.whole.units)
		}
	}
}

// decide separates the groups that can be called for the same request.
func (s *separation) decide() {
	for common, groups := range s.groups {
		for group, mine := range groups {
			for other, theirs := range groups {
				if other != group && mine.overlaps(theirs) {
					s.separated[separableGroup{common, group}] = true
					break
				}
			}
		}
	}
}

// reach has the operations on resources for which a group is called, whatever the version.
type reach map[resourceEntry]operations

// resourceEntry is a resource as in a rule, with wildcards.
type resourceEntry struct{ group, resource string }

func (r reach) add(units []ruleUnit) {
	for _, u := range units {
		r[resourceEntry{u.group, u.resource}] |= u.ops
	}
}

// overlaps reports whether both can be called for the same request.
func (r reach) overlaps(other reach) bool {
	for entry, ops := range r {
		if other[entry]&ops != 0 {
			return true
		}
	}
	return r.overlapsByWildcard(other) || other.overlapsByWildcard(r)
}

func (r reach) overlapsByWildcard(other reach) bool {
	for a, ops := range r {
		if a.group != wildcard && !strings.Contains(a.resource, wildcard) {
			continue
		}
		for b, otherOps := range other {
			sameGroup := a.group == b.group || a.group == wildcard || b.group == wildcard
			if ops&otherOps != 0 && sameGroup && resourcesOverlap(a.resource, b.resource) {
				return true
			}
		}
	}
	return false
}
