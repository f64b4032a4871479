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
	// opAny stands for "*", which includes operations yet to be invented. A
	// set with opAny has every other bit set too.
	opAny

	opAll = opConnect | opCreate | opDelete | opUpdate | opAny

	// opMutable are the operations that mutations are called for, as in native
	// policies: what a DELETE sends is not stored.
	opMutable = opConnect | opCreate | opUpdate
)

// ruleUnit is a part of a rule: one API group, one resource, one scope. Unlike
// rules, atoms can be merged without matching more than they did.
type ruleUnit struct {
	target
	ops operations
}

// target is what an atom is about. versions is a sorted list joined by commas.
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

// plainRules are rules in canonical form, without resourceNames and without
// what the phase has no calls for. Their order is kept.
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

// sizeOf is about what atoms cost as JSON, before any merging.
func sizeOf(atoms []ruleUnit) int {
	size := 0
	for _, a := range atoms {
		size += len(a.group) + len(a.resource) + len(a.versions) + 16
	}
	return size
}

// ruleShape is what atoms must have in common to stand in one rule.
type ruleShape struct {
	versions string
	scope    admissionregistrationv1.ScopeType
	ops      operations
}

// union merges atoms into few rules that match exactly what the atoms match.
func union(lists ...[]ruleUnit) []admissionregistrationv1.RuleWithOperations {
	ops := map[target]operations{}
	for _, atoms := range lists {
		for _, a := range atoms {
			ops[a.target] |= a.ops
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

// dropCovered drops rules that rules with wildcards match anyway.
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

// rules puts API groups with the same resources into one rule, except for the
// group "*", which has to stand alone.
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

// widerEntries lists the entries of a rule's resources (a resource, or
// resource/subresource, either of them possibly "*") that match all that an
// entry matches, itself included. As in the API server, "pods/*" matches pods
// too.
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

// compactResources drops what another entry of the list matches anyway. The
// API server refuses some such lists.
func compactResources(list []string) []string {
	s := newSet(list)
	return slices.DeleteFunc(list, func(entry string) bool {
		return slices.ContainsFunc(widerEntries(entry), func(w string) bool { return w != entry && s.has(w) })
	})
}

// covers reports whether rules match whatever the atoms match.
func covers(rules []admissionregistrationv1.RuleWithOperations, atoms []ruleUnit) bool {
	for _, a := range atoms {
		for version := range strings.SplitSeq(a.versions, ",") {
			var matched operations
			for i := range rules {
				if ruleCovers(&rules[i], a.target, version) {
					matched |= operationsOf(rules[i].Operations)
				}
			}
			if a.ops&^matched != 0 {
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
