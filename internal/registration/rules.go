package registration

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const wildcard = "*"

// operations is a set of operations.
type operations uint8

const (
	opConnect operations = 1 << iota
	opCreate
	opDelete
	opUpdate
	// opAny is "*", which includes operations of future versions. A set with opAny
	// has every other bit set too.
	opAny

	opAll = opConnect | opCreate | opDelete | opUpdate | opAny

	// opMutable are the operations of mutations, as in native policies. A DELETE
	// stores no object.
	opMutable = opConnect | opCreate | opUpdate
)

// ruleUnit is a part of a rule: one API group, one resource, one scope. Unlike
// rules, units can be merged without matching more requests.
type ruleUnit struct {
	target
	ops operations
}

// target is the resource of a unit. versions is a sorted list separated by commas.
type target struct {
	group, resource, versions string
	scope                     admissionregistrationv1.ScopeType
}

func operationsOf(list []admissionregistrationv1.OperationType) operations {
	var set operations
	for _, op := range list {
		switch op {
		case admissionregistrationv1.OperationAll:
			set |= opAll
		case admissionregistrationv1.Connect:
			set |= opConnect
		case admissionregistrationv1.Create:
			set |= opCreate
		case admissionregistrationv1.Delete:
			set |= opDelete
		case admissionregistrationv1.Update:
			set |= opUpdate
		}
	}
	return set
}

func (o operations) list() []admissionregistrationv1.OperationType {
	if o&opAny != 0 {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	}
	var out []admissionregistrationv1.OperationType
	for _, named := range []struct {
		bit  operations
		name admissionregistrationv1.OperationType
	}{
		{opConnect, admissionregistrationv1.Connect},
		{opCreate, admissionregistrationv1.Create},
		{opDelete, admissionregistrationv1.Delete},
		{opUpdate, admissionregistrationv1.Update},
	} {
		if o&named.bit != 0 {
			out = append(out, named.name)
		}
	}
	return out
}

// plainRules returns rules in canonical form and in the same order, without
// resourceNames and without operations for which the phase is not called.
func plainRules(rules []admissionregistrationv1.NamedRuleWithOperations, phase Phase) []admissionregistrationv1.RuleWithOperations {
	out := make([]admissionregistrationv1.RuleWithOperations, 0, len(rules))
	for i := range rules {
		ops := operationsOf(rules[i].Operations)
		if phase == PhaseMutate {
			if ops &= opMutable; ops == 0 {
				continue
			}
		}
		out = append(out, admissionregistrationv1.RuleWithOperations{
			Operations: ops.list(),
			Rule: admissionregistrationv1.Rule{
				APIGroups:   sortedSet(rules[i].APIGroups),
				APIVersions: sortedSet(rules[i].APIVersions),
				Resources:   compactResources(sortedSet(rules[i].Resources)),
				Scope:       new(scopeOf(rules[i].Scope)),
			},
		})
	}
	return out
}

func scopeOf(scope *admissionregistrationv1.ScopeType) admissionregistrationv1.ScopeType {
	if scope == nil {
		return admissionregistrationv1.AllScopes
	}
	return *scope
}

func unitsOf(rules []admissionregistrationv1.RuleWithOperations) []ruleUnit {
	var out []ruleUnit
	for i := range rules {
		r := &rules[i]
		p := target{versions: strings.Join(r.APIVersions, ","), scope: scopeOf(r.Scope)}
		ops := operationsOf(r.Operations)
		for _, p.group = range r.APIGroups {
			for _, p.resource = range r.Resources {
				out = append(out, ruleUnit{target: p, ops: ops})
			}
		}
	}
	return out
}

// sizeOf returns the approximate size of units as JSON in bytes, without merging.
func sizeOf(units []ruleUnit) int {
	size := 0
	for _, u := range units {
		size += len(u.group) + len(u.resource) + len(u.versions) + 16
	}
	return size
}

// ruleShape is the part that is equal for all units of one rule.
type ruleShape struct {
	versions string
	scope    admissionregistrationv1.ScopeType
	ops      operations
}

// union merges units into few rules that match exactly the same requests.
func union(lists ...[]ruleUnit) []admissionregistrationv1.RuleWithOperations {
	ops := map[target]operations{}
	for _, units := range lists {
		for _, u := range units {
			ops[u.target] |= u.ops
		}
	}
	byShape := map[ruleShape]map[string][]string{}
	for p, set := range ops {
		if p.scope != admissionregistrationv1.AllScopes {
			wide := p
			wide.scope = admissionregistrationv1.AllScopes
			if set &^= ops[wide]; set == 0 {
				continue
			}
		}
		s := ruleShape{versions: p.versions, scope: p.scope, ops: set}
		if byShape[s] == nil {
			byShape[s] = map[string][]string{}
		}
		byShape[s][p.group] = append(byShape[s][p.group], p.resource)
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for s, resources := range byShape {
		rules = append(rules, s.rules(resources)...)
	}
	rules = dropCovered(rules)
	slices.SortFunc(rules, compareRules)
	return rules
}

// dropCovered removes rules whose requests a rule with wildcards matches too.
func dropCovered(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	var wide, kept []admissionregistrationv1.RuleWithOperations
	var wideAt []int
	for i := range rules {
		if isWide(&rules[i].Rule) {
			wide, wideAt = append(wide, rules[i]), append(wideAt, i)
		}
	}
	if len(wide) == 0 {
		return rules
	}
	for i := range rules {
		others := wide
		if at := slices.Index(wideAt, i); at >= 0 {
			others = slices.Delete(slices.Clone(wide), at, at+1)
		}
		if !covers(others, unitsOf(rules[i:i+1])) {
			kept = append(kept, rules[i])
		}
	}
	return kept
}

func isWide(rule *admissionregistrationv1.Rule) bool {
	return slices.Contains(rule.APIGroups, wildcard) ||
		slices.ContainsFunc(rule.Resources, func(entry string) bool { return strings.Contains(entry, wildcard) })
}

// rules combines API groups with the same resources into one rule. The group "*"
// cannot be combined with others.
func (s ruleShape) rules(resources map[string][]string) []admissionregistrationv1.RuleWithOperations {
	everywhere := newSet(resources[wildcard])
	type row struct{ groups, resources []string }
	rows := map[string]*row{}
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		list := resources[group]
		if group != wildcard {
			list = slices.DeleteFunc(slices.Clone(list), everywhere.covers)
		}
		list = compactResources(sortedSet(list))
		if len(list) == 0 {
			continue
		}
		key := strings.Join(list, ",")
		if group == wildcard {
			key = wildcard + " " + key
		}
		if rows[key] == nil {
			rows[key] = &row{resources: list}
		}
		rows[key].groups = append(rows[key].groups, group)
	}
	var out []admissionregistrationv1.RuleWithOperations
	for _, r := range rows {
		out = append(out, admissionregistrationv1.RuleWithOperations{
			Operations: s.ops.list(),
			Rule: admissionregistrationv1.Rule{
				APIGroups: r.groups, APIVersions: strings.Split(s.versions, ","), Resources: r.resources, Scope: new(s.scope),
			},
		})
	}
	return out
}

func compareRules(a, b admissionregistrationv1.RuleWithOperations) int {
	return cmp.Or(
		slices.Compare(a.APIGroups, b.APIGroups),
		slices.Compare(a.Resources, b.Resources),
		slices.Compare(a.APIVersions, b.APIVersions),
		cmp.Compare(*a.Scope, *b.Scope),
		slices.Compare(a.Operations, b.Operations),
	)
}

type set map[string]struct{}

func newSet(items []string) set {
	s := make(set, len(items))
	for _, item := range items {
		s[item] = struct{}{}
	}
	return s
}

func (s set) has(item string) bool {
	_, ok := s[item]
	return ok
}

// widerEntries returns the entries of a rule's resources that match everything that
// an entry matches, including the entry itself. As in the API server, "pods/*"
// matches pods too.
func widerEntries(entry string) []string {
	resource, subresource, found := strings.Cut(entry, "/")
	anyResource := wildcard
	if found {
		anyResource += "/" + subresource
	}
	return []string{"*/*", resource + "/*", anyResource, entry}
}

func (s set) covers(entry string) bool {
	return slices.ContainsFunc(widerEntries(entry), s.has)
}

// compactResources removes entries that another entry of the list covers. The API
// server rejects some lists with such entries.
func compactResources(list []string) []string {
	s := newSet(list)
	return slices.DeleteFunc(list, func(entry string) bool {
		return slices.ContainsFunc(widerEntries(entry), func(w string) bool { return w != entry && s.has(w) })
	})
}

// covers reports whether rules match all requests that the units match.
func covers(rules []admissionregistrationv1.RuleWithOperations, units []ruleUnit) bool {
	for _, u := range units {
		for version := range strings.SplitSeq(u.versions, ",") {
			var matched operations
			for i := range rules {
				if ruleCovers(&rules[i], u.target, version) {
					matched |= operationsOf(rules[i].Operations)
				}
			}
			if u.ops&^matched != 0 {
				return false
			}
		}
	}
	return true
}

func ruleCovers(rule *admissionregistrationv1.RuleWithOperations, p target, version string) bool {
	scope := scopeOf(rule.Scope)
	return (scope == admissionregistrationv1.AllScopes || scope == p.scope) &&
		(slices.Contains(rule.APIGroups, p.group) || slices.Contains(rule.APIGroups, wildcard)) &&
		(slices.Contains(rule.APIVersions, version) || slices.Contains(rule.APIVersions, wildcard)) &&
		slices.ContainsFunc(widerEntries(p.resource), func(w string) bool { return slices.Contains(rule.Resources, w) })
}
