package validation

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/nearest"
	"github.com/ostiary/ostiary/internal/plugins"
)

// Unmatched warns about rules that name something that the API server does not serve, or
// requests that it never sends. all is true if no rule matches any request. Without known
// resources there are no warnings.
func Unmatched(p *v1alpha1.WebhookPolicy, facts ClusterInfo) (warnings []string, all bool) {
	rules := rulesOf(&plugins.Resolve(p).Policy.Spec)
	if facts.Resources == nil || len(rules) == 0 {
		return nil, false
	}
	var w warner
	for i := range rulesOf(&p.Spec) {
		rule := &rulesOf(&p.Spec)[i].RuleWithOperations
		here := rulePath(i)
		w.unknown(&rule.Rule, facts, here)
		w.unmatched(rule, facts, here)
		w.virtual(&rule.Rule, here)
	}
	all = !slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return facts.reachable(&r.RuleWithOperations)
	})
	return Bounded(w.warnings), all
}

func rulePath(i int) *field.Path {
	return field.NewPath("spec", "matchConstraints", "resourceRules").Index(i)
}

// unknown warns about what the API server does not have: a group, else a version of all
// groups of the rule, else a resource in all of these. Not every pair of a group and a
// resource of a rule has to exist.
func (w *warner) unknown(rule *admissionregistrationv1.Rule, facts ClusterInfo, at *field.Path) {
	for i, group := range rule.APIGroups {
		if group != wildcard && len(facts.matching([]string{group}, []string{wildcard})) == 0 {
			w.warn(at.Child("apiGroups").Index(i),
				"the API server has no group %q%s",
				group, suggestion(group, facts.groups(), "correct it, unless it is still to be installed"))
		}
	}
	served := facts.matching(rule.APIGroups, []string{wildcard})
	if len(served) == 0 {
		return
	}
	for i, version := range rule.APIVersions {
		if version != wildcard && len(facts.matching(rule.APIGroups, []string{version})) == 0 {
			w.warn(at.Child("apiVersions").Index(i),
				"the API server does not serve the version %q of these groups: use %s", version, versionsOf(served))
		}
	}
	found := facts.matching(rule.APIGroups, rule.APIVersions)
	if len(found) == 0 || slices.ContainsFunc(found, facts.isUnknown) {
		return
	}
	for i, entry := range rule.Resources {
		if !slices.ContainsFunc(found, func(gv schema.GroupVersion) bool { return facts.has(gv, entry) }) {
			w.warn(at.Child("resources").Index(i),
				"the API server does not serve %q in these groups and versions%s", entry, facts.similar(entry, found))
		}
	}
}

// suggestion ends a message about an unknown name.
func suggestion(name string, among iter.Seq[string], otherwise string) string {
	if found := nearest.Name(name, among); found != "" {
		return fmt.Sprintf(", did you mean %q?", found)
	}
	return ": " + otherwise
}

func (f ClusterInfo) groups() iter.Seq[string] {
	return func(yield func(string) bool) {
		for gv := range f.Resources {
			if !yield(gv.Group) {
				return
			}
		}
	}
}

func versionsOf(served []schema.GroupVersion) string {
	versions := map[string]bool{}
	for _, gv := range served {
		versions[gv.Version] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(versions)), ", ")
}

// similar returns the end of a message about a resource that is not in some groups and
// versions: other groups with it, a resource with that kind, short name or singular name,
// or a similar name.
func (f ClusterInfo) similar(entry string, found []schema.GroupVersion) string {
	if groups := f.groupsWith(entry); len(groups) > 0 {
		return ": it is in " + groups
	}
	if name := f.alias(withoutList(entry), slices.Collect(maps.Keys(f.Resources))); name != "" && isList(entry) {
		return fmt.Sprintf(": name %q, since requests contain the objects of a list, and never the list", name)
	}
	if name := f.alias(entry, found); name != "" {
		return fmt.Sprintf(", did you mean %q?", name)
	}
	if name := nearest.Name(entry, f.names(found)); name != "" {
		return fmt.Sprintf(", did you mean %q?", name)
	}
	everywhere := slices.Collect(maps.Keys(f.Resources))
	name := f.alias(entry, everywhere)
	if name == "" {
		name = nearest.Name(entry, f.names(everywhere))
	}
	if name != "" {
		return fmt.Sprintf(", did you mean %q in %s?", name, f.groupsWith(name))
	}
	return ": correct it, unless it is still to be installed"
}

// groupsWith returns the groups that serve a resource.
func (f ClusterInfo) groupsWith(entry string) string {
	groups := map[string]bool{}
	for gv := range f.Resources {
		if f.has(gv, entry) {
			groups[describeGroup(gv.Group)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(groups)), " and ")
}

func describeGroup(group string) string {
	if group == "" {
		return `the core group ""`
	}
	return fmt.Sprintf("the group %q", group)
}

// alias returns the resource with a kind, a short name or a singular name.
func (f ClusterInfo) alias(entry string, among []schema.GroupVersion) string {
	var names []string
	for _, gv := range among {
		for _, r := range f.Resources[gv] {
			if !strings.Contains(r.Name, "/") && (strings.EqualFold(r.Kind, entry) || strings.EqualFold(r.SingularName, entry) || slices.Contains(r.ShortNames, entry)) {
				names = append(names, r.Name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// isList reports whether an entry of a rule has the name of a list: DeploymentList or deploymentlists.
func isList(entry string) bool { return withoutList(entry) != entry }

// withoutList returns the name of the kind of which a list has the name; otherwise the entry itself.
func withoutList(entry string) string {
	for _, suffix := range []string{"list", "lists"} {
		if kind, ok := strings.CutSuffix(strings.ToLower(entry), suffix); ok && kind != "" {
			return kind
		}
	}
	return entry
}

func (f ClusterInfo) names(among []schema.GroupVersion) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, gv := range among {
			for _, r := range f.Resources[gv] {
				if !yield(r.Name) {
					return
				}
			}
		}
	}
}

// unmatched warns about served resources for which no request matches the rule.
func (w *warner) unmatched(rule *admissionregistrationv1.RuleWithOperations, facts ClusterInfo, at *field.Path) {
	for i, entry := range rule.Resources {
		if strings.Contains(entry, wildcard) {
			continue
		}
		if problem := whyUnmatched(rule, entry, facts.resources(&rule.Rule, entry)); problem != "" {
			w.warn(at.Child("resources").Index(i), "no request matches: %s", problem)
		}
	}
}

// served is a resource with its group.
type served struct {
	group string
	metav1.APIResource
}

// resources returns the resources that an entry of a rule matches.
func (f ClusterInfo) resources(rule *admissionregistrationv1.Rule, entry string) []served {
	var out []served
	for _, gv := range f.matching(rule.APIGroups, rule.APIVersions) {
		for _, r := range f.Resources[gv] {
			if reaches(entry, r.Name) {
				out = append(out, served{gv.Group, r})
			}
		}
	}
	slices.SortFunc(out, func(a, b served) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.Name, b.Name)) })
	return out
}

// whyUnmatched explains why a rule matches no request for any of some resources.
func whyUnmatched(rule *admissionregistrationv1.RuleWithOperations, entry string, found []served) string {
	if len(found) == 0 || slices.ContainsFunc(found, func(r served) bool { return matchesSome(rule, r) }) {
		return ""
	}
	if r := found[0]; !inScope(rule, r) {
		has := "cluster-scoped"
		if r.Namespaced {
			has = "namespaced"
		}
		return fmt.Sprintf("%q is %s, and the rule has scope %s; remove scope", entry, has, *rule.Scope)
	}
	possible := found[0].operations()
	if len(possible) == 0 {
		return fmt.Sprintf("clients can only read %q", entry)
	}
	names := make([]string, len(possible))
	for i, o := range possible {
		names[i] = string(o)
	}
	if len(names) == 1 {
		return fmt.Sprintf("requests for %q have only the operation %s; add it to operations", entry, names[0])
	}
	last := len(names) - 1
	return fmt.Sprintf("requests for %q have only the operations %s and %s; add one of them to operations", entry, strings.Join(names[:last], ", "), names[last])
}

func matchesSome(rule *admissionregistrationv1.RuleWithOperations, r served) bool {
	return inScope(rule, r) && slices.ContainsFunc(r.operations(), func(o admissionregistrationv1.OperationType) bool {
		return slices.Contains(rule.Operations, o) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
	})
}

func inScope(rule *admissionregistrationv1.RuleWithOperations, r served) bool {
	switch {
	case rule.Scope == nil || *rule.Scope == admissionregistrationv1.AllScopes:
		return true
	case *rule.Scope == admissionregistrationv1.NamespacedScope:
		return r.Namespaced
	}
	return !r.Namespaced
}

// operations returns the possible operations of requests for a resource. An aggregated
// API server can have subresources with the operation CONNECT.
func (r served) operations() []admissionregistrationv1.OperationType {
	if r.isConnected() {
		return []admissionregistrationv1.OperationType{admissionregistrationv1.Connect}
	}
	foreign := !ofKubernetes(r.group) && strings.Contains(r.Name, "/")
	var out []admissionregistrationv1.OperationType
	for _, o := range []struct {
		admissionregistrationv1.OperationType
		possible bool
	}{
		{admissionregistrationv1.Create, r.has("create")},
		{admissionregistrationv1.Update, r.has("update", "patch")},
		{admissionregistrationv1.Delete, r.has("delete", "deletecollection")},
		{admissionregistrationv1.Connect, foreign},
	} {
		if o.possible {
			out = append(out, o.OperationType)
		}
	}
	return out
}

// isConnected reports whether requests for a subresource have the operation CONNECT, and
// no other, whatever their HTTP method is.
func (r served) isConnected() bool {
	switch r.Name {
	case "nodes/proxy", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy":
		return r.group == ""
	}
	return false
}

// has reports whether a resource has one of some verbs. Without verbs it is not known.
func (r served) has(verbs ...string) bool {
	return len(r.Verbs) == 0 || slices.ContainsFunc(verbs, func(v string) bool { return slices.Contains(r.Verbs, v) })
}

// reachable reports whether a rule matches requests for some resource. A version whose
// resources are not known may have any.
func (f ClusterInfo) reachable(rule *admissionregistrationv1.RuleWithOperations) bool {
	if slices.ContainsFunc(f.matching(rule.APIGroups, rule.APIVersions), f.isUnknown) {
		return true
	}
	return slices.ContainsFunc(rule.Resources, func(entry string) bool {
		return slices.ContainsFunc(f.resources(&rule.Rule, entry), func(r served) bool { return matchesSome(rule, r) })
	})
}
