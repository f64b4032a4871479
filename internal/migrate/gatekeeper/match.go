package gatekeeper

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

const wildcard = "*"

// match converts what the constraint matches.
func (b *builder) match() {
	m := b.from
	if m.Source == "Generated" {
		b.leaveOut(
			"spec.match.source",
			"the constraint is only for objects that Gatekeeper generates from others",
			"use podTemplates in a policy for Pods",
		)
	}
	out := &admissionregistrationv1.MatchResources{
		NamespaceSelector: b.namespaceSelector(),
		ObjectSelector:    m.LabelSelector,
	}
	out.ResourceRules = b.rules()
	b.noteFormerLabels()
	switch m.Scope {
	case "", wildcard:
	case string(admissionregistrationv1.ClusterScope), string(admissionregistrationv1.NamespacedScope):
		for i := range out.ResourceRules {
			out.ResourceRules[i].Scope = new(admissionregistrationv1.ScopeType(m.Scope))
		}
	default:
		b.leaveOut(
			"spec.match.scope",
			fmt.Sprintf("the scope %q is not known", m.Scope),
			"write Cluster, Namespaced or *",
		)
	}
	b.policy.Spec.MatchConstraints = out
	b.namespaceConditions()
	if m.Name != "" && m.Name != wildcard {
		b.condition("name", nameCondition(m.Name, b.comparedObjects()))
	}
	if b.mutates && m.LabelSelector != nil { // the selector of objects selects the old one too
		b.condition("labels", labelCondition(m.LabelSelector))
	}
}

// noteFormerLabels says that a namespaceSelector selects a Namespace by the labels of the new object,
// as API servers do. Gatekeeper's constraints match those of the stored object too.
func (b *builder) noteFormerLabels() {
	m := b.from
	if b.mutates || m.NamespaceSelector == nil || m.Scope == string(admissionregistrationv1.NamespacedScope) {
		return
	}
	if len(m.Kinds) > 0 && !slices.ContainsFunc(m.Kinds, selectedKinds.hasNamespaces) {
		return
	}
	if len(b.operations) > 0 && !slices.Contains(b.operations, admissionregistrationv1.Update) &&
		!slices.Contains(b.operations, admissionregistrationv1.OperationAll) {
		return
	}
	b.change(
		"spec.match.namespaceSelector",
		"an UPDATE of a Namespace is selected by its new labels: Gatekeeper also denies one whose labels before the "+
			"UPDATE match",
	)
}

// hasNamespaces reports whether the kinds contain Namespace.
func (k selectedKinds) hasNamespaces() bool {
	isOneOf := func(all []string, name string) bool {
		return len(all) == 0 || slices.Contains(all, wildcard) || slices.Contains(all, name)
	}
	return isOneOf(k.APIGroups, "") && isOneOf(k.Kinds, "Namespace")
}

// comparedObjects are those of which one has to match, as CEL: mutators match only the new object.
func (b *builder) comparedObjects() string {
	if b.mutates {
		return "[object]"
	}
	return "[object, oldObject]"
}

func (b *builder) condition(name, expression string) {
	b.policy.Spec.MatchConditions = append(
		b.policy.Spec.MatchConditions,
		admissionregistrationv1.MatchCondition{Name: "match-" + name, Expression: expression},
	)
}

// nameCondition matches names with a prefix or a suffix, of one of some objects. Gatekeeper matches
// generateName with a prefix too.
func nameCondition(name, objects string) string {
	pattern := celtext.QuoteText(wildcardPattern([]string{name}))
	generated := ""
	if strings.HasSuffix(name, wildcard) {
		generated = fmt.Sprintf(` || o.metadata.?generateName.orValue("").matches(%s)`, pattern)
	}
	return fmt.Sprintf(
		`%s.exists(o, o != null && (o.metadata.?name.orValue("").matches(%s)%s))`,
		objects,
		pattern,
		generated,
	)
}

// labelCondition selects the new object by its labels.
func labelCondition(s *metav1.LabelSelector) string {
	const labels = "object.metadata.?labels.orValue({})"
	isOneOf := func(key string, values []string) string {
		name := celtext.QuoteText(key)
		return fmt.Sprintf("(%s in %s && %s[%s] in %s)", name, labels, labels, name, encodeJSON(values))
	}
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		terms = append(terms, isOneOf(key, []string{s.MatchLabels[key]}))
	}
	for _, r := range s.MatchExpressions {
		exists := fmt.Sprintf("%s in %s", celtext.QuoteText(r.Key), labels)
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			terms = append(terms, isOneOf(r.Key, r.Values))
		case metav1.LabelSelectorOpNotIn:
			terms = append(terms, "!"+isOneOf(r.Key, r.Values))
		case metav1.LabelSelectorOpExists:
			terms = append(terms, exists)
		case metav1.LabelSelectorOpDoesNotExist:
			terms = append(terms, "!("+exists+")")
		}
	}
	if len(terms) == 0 {
		return "true"
	}
	return strings.Join(terms, " && ")
}

// wildcardPattern returns a regular expression for names with wildcards.
func wildcardPattern(names []string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = strings.ReplaceAll(regexp.QuoteMeta(n), `\*`, ".*")
	}
	return "^(" + strings.Join(parts, "|") + ")$"
}

func hasWildcard(name string) bool { return strings.Contains(name, wildcard) }

// namespaceSelector returns the selector with the names that have no wildcard.
func (b *builder) namespaceSelector() *metav1.LabelSelector {
	m := b.from
	var names []metav1.LabelSelectorRequirement
	if len(m.Namespaces) > 0 && !slices.ContainsFunc(m.Namespaces, hasWildcard) {
		names = append(names, metav1.LabelSelectorRequirement{
			Key:      corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpIn,
			Values:   m.Namespaces,
		})
	}
	if len(m.ExcludedNamespaces) > 0 && !slices.ContainsFunc(m.ExcludedNamespaces, hasWildcard) {
		names = append(names, metav1.LabelSelectorRequirement{
			Key:      corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpNotIn,
			Values:   m.ExcludedNamespaces,
		})
	}
	if len(names) == 0 {
		return m.NamespaceSelector
	}
	out := m.NamespaceSelector.DeepCopy()
	if out == nil {
		out = &metav1.LabelSelector{}
	}
	out.MatchExpressions = append(out.MatchExpressions, names...)
	return out
}

// namespaceConditions adds conditions for names with wildcards. The namespace of a request
// for a Namespace is its name. Requests without one match, as in selectors.
func (b *builder) namespaceConditions() {
	m := b.from
	add := func(name string, namespaces []string, not string) {
		if slices.ContainsFunc(namespaces, hasWildcard) {
			b.condition(
				name,
				fmt.Sprintf(
					`request.?namespace.orValue("") == "" || %srequest.namespace.matches(%s)`,
					not,
					celtext.QuoteText(wildcardPattern(namespaces)),
				),
			)
		}
	}
	add("namespaces", m.Namespaces, "")
	add("excluded-namespaces", m.ExcludedNamespaces, "!")
}

// rules returns the rules for the kinds. Gatekeeper matches kinds, and rules have resources.
func (b *builder) rules() (out []admissionregistrationv1.NamedRuleWithOperations) {
	all := b.from.Kinds
	if len(all) == 0 {
		return []admissionregistrationv1.NamedRuleWithOperations{b.rule([]string{wildcard}, []string{wildcard})}
	}
	byGroup := map[string][]string{}
	var guess bool
	for i, k := range all {
		groups, everyGroup := k.APIGroups, len(k.APIGroups) == 0 || slices.Contains(k.APIGroups, wildcard)
		if everyGroup {
			groups = []string{wildcard}
		}
		if len(k.Kinds) == 0 || slices.Contains(k.Kinds, wildcard) {
			out = append(out, b.rule(groups, []string{wildcard}))
			continue
		}
		for _, kind := range k.Kinds {
			guess = b.kind(fmt.Sprintf("spec.match.kinds[%d].kinds", i), kind, groups, everyGroup, byGroup) || guess
		}
	}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		resources := byGroup[group]
		slices.Sort(resources)
		out = append(out, b.rule([]string{group}, slices.Compact(resources)))
	}
	if guess {
		b.condition("kinds", kindsCondition(all))
	}
	if len(out) == 0 {
		b.leaveOut(
			"spec.match.kinds",
			"Kubernetes has none of the kinds",
			"correct them, or add their CustomResourceDefinitions with -f",
		)
	}
	return out
}

// kind adds the resources of a kind. It returns true if they are not known: then the rule
// has all resources of the group, and a condition needs to select the kind.
func (b *builder) kind(field, kind string, groups []string, anyGroup bool, byGroup map[string][]string) (guess bool) {
	found := b.resources.byGroup(kind, func(group string) bool { return anyGroup || slices.Contains(groups, group) })
	for group, resources := range found {
		byGroup[group] = append(byGroup[group], resources...)
		if !b.mutates {
			byGroup[group] = append(byGroup[group], subresources(group, kind)...)
		}
	}
	if anyGroup {
		b.change(
			field,
			fmt.Sprintf(
				"the kind %s of all groups: the policy is for those of Kubernetes and of the "+
					"CustomResourceDefinitions of the input",
				kind,
			),
		)
		return false
	}
	for _, group := range groups {
		if len(found[group]) == 0 && !b.resources.knows(group) {
			byGroup[group] = append(byGroup[group], wildcard)
			guess = true
		}
	}
	return guess
}

// subresources are those with the kind of their resource for which Gatekeeper is called.
func subresources(group, kind string) []string {
	switch {
	case group == "" && kind == "Pod":
		return []string{"pods/ephemeralcontainers"}
	case group == "" && kind == "Service":
		return []string{"services/status"}
	}
	return nil
}

// kindsCondition matches the kinds.
func kindsCondition(all []selectedKinds) string {
	parts := make([]string, len(all))
	for i, k := range all {
		var terms []string
		if len(k.APIGroups) > 0 && !slices.Contains(k.APIGroups, wildcard) {
			terms = append(terms, "request.kind.group in "+encodeJSON(k.APIGroups))
		}
		if len(k.Kinds) > 0 && !slices.Contains(k.Kinds, wildcard) {
			terms = append(terms, "request.kind.kind in "+encodeJSON(k.Kinds))
		}
		if len(k.versions) > 0 {
			terms = append(terms, "request.kind.version in "+encodeJSON(k.versions))
		}
		if len(terms) == 0 {
			terms = []string{"true"}
		}
		parts[i] = "(" + strings.Join(terms, " && ") + ")"
	}
	return strings.Join(parts, " || ")
}

func (b *builder) rule(groups, resources []string) admissionregistrationv1.NamedRuleWithOperations {
	versions := b.versions
	if len(versions) == 0 {
		versions = []string{wildcard}
	}
	if slices.Contains(resources, wildcard) {
		resources = []string{wildcard}
	}
	operations := b.operations
	if len(operations) == 0 {
		operations = []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create,
			admissionregistrationv1.Update,
		}
	}
	rule := admissionregistrationv1.Rule{APIGroups: groups, APIVersions: versions, Resources: resources}
	return admissionregistrationv1.NamedRuleWithOperations{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: rule},
	}
}
