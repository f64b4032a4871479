package classic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// ruleMatching is the converted match and exclude of a rule.
type ruleMatching struct {
	catalogue catalogue
	rules     []admissionregistrationv1.NamedRuleWithOperations
	kinds     []servedKind
	match     ce.Expression
	exclude   ce.Expression
	object    ce.Place
	deletes   bool // the object can be in oldObject
	extends   bool // Kyverno extends the rule to workloads if it extends the policy
	notes     []string
	selected  *metav1.LabelSelector // of namespaces, for all that matches
}

// filters returns the blocks of a match, and whether all of them have to match.
func (m *matchResources) filters() (blocks []filter, all bool) {
	switch {
	case len(m.Any) > 0:
		return m.Any, false
	case len(m.All) > 0:
		return m.All, true
	}
	return []filter{m.filter}, true
}

// newMatching converts match and exclude of a rule that has an effect for some operations.
func newMatching(r *rule, c catalogue, operations operationSet) (*ruleMatching, error) {
	m := &ruleMatching{catalogue: c}
	blocks, all := r.Match.filters()
	for i, b := range blocks {
		if err := m.addRules(b.Resources, operations); err != nil {
			return nil, fmt.Errorf("match[%d]: %w", i, err)
		}
	}
	if len(m.rules) == 0 {
		return nil, fmt.Errorf(
			"match: it has no kinds, or no operations for which the rule has an effect, so it matches no request",
		)
	}
	m.setObject()
	blocks = m.selectNamespaces(blocks)
	match, err := m.combine(blocks, all, len(blocks) > 1 && !onlyKinds(blocks))
	if err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	m.match, m.exclude = match, ce.False()
	m.extends = namesPods(blocks)
	if r.Exclude != nil {
		blocks, all := r.Exclude.filters()
		m.extends = m.extends && (namesNoKinds(blocks) || namesPods(blocks))
		blocks = slices.DeleteFunc(slices.Clone(blocks), func(f filter) bool { return f.isEmpty() })
		if len(blocks) > 0 {
			if m.exclude, err = m.combine(blocks, all, true); err != nil {
				return nil, fmt.Errorf("exclude: %w", err)
			}
		}
	}
	return m, nil
}

// selectNamespaces takes the selector of namespaces from the only block, if an API server
// can evaluate it like Kyverno.
func (m *ruleMatching) selectNamespaces(blocks []filter) []filter {
	if len(blocks) != 1 || blocks[0].Resources.NamespaceSelector == nil {
		return blocks
	}
	s := blocks[0].Resources.NamespaceSelector
	for key, value := range s.MatchLabels {
		if scalar.HasWildcard(key + value) {
			return blocks
		}
	}
	if slices.ContainsFunc(m.kinds, func(k servedKind) bool { return !k.namespaced }) {
		return blocks
	}
	m.selected = s
	only := blocks[0]
	only.Resources.NamespaceSelector = nil
	return []filter{only}
}

func (f filter) isEmpty() bool {
	d := f.Resources
	lists := len(f.Roles) + len(f.ClusterRoles) + len(f.Subjects) + len(d.Kinds) + len(d.Names) + len(d.Namespaces) +
		len(d.Annotations) + len(d.Operations)
	return lists == 0 &&
		d.Name == "" && d.Selector == nil && d.NamespaceSelector == nil
}

// onlyKinds reports whether blocks name kinds only, so that rules are enough.
func onlyKinds(blocks []filter) bool {
	return !slices.ContainsFunc(blocks, func(f filter) bool {
		f.Resources.Kinds, f.Resources.Operations = nil, nil
		return !f.isEmpty()
	})
}

// namesPods reports whether a block is for Pods.
func namesPods(blocks []filter) bool {
	return slices.ContainsFunc(blocks, func(f filter) bool { return f.Resources.hasPods() })
}

func namesNoKinds(blocks []filter) bool {
	return !slices.ContainsFunc(blocks, func(f filter) bool { return len(f.Resources.Kinds) > 0 })
}

func (d *resourceDescription) hasPods() bool {
	return slices.ContainsFunc(d.Kinds, func(text string) bool {
		k, ok := parseKind(text)
		return ok && k.kind == "Pod" && k.subresource == ""
	})
}

// extends reports whether Kyverno extends the rules for Pods to the pod templates of
// workloads: no rule of the policy has a JSON patch or generates objects, or selects objects
// by name, labels or annotations, or Pods together with other kinds.
func (b *builder) extends() bool {
	return !slices.ContainsFunc(b.source.Spec.Rules, func(r rule) bool {
		blocks := []filter{r.Match.filter}
		blocks = append(append(blocks, r.Match.Any...), r.Match.All...)
		if e := r.Exclude; e != nil {
			blocks = append(append(append(blocks, e.filter), e.Any...), e.All...)
		}
		return r.Generate != nil || r.Mutate != nil && r.Mutate.hasJSONPatch() ||
			slices.ContainsFunc(blocks, func(f filter) bool {
				return f.Resources.names() || len(f.Resources.Kinds) > 1 && f.Resources.hasPods()
			})
	})
}

func (m *mutation) hasJSONPatch() bool {
	return m.PatchesJSON6902 != "" ||
		slices.ContainsFunc(m.ForEach, func(f forEachMutation) bool { return f.PatchesJSON6902 != "" })
}

func (d *resourceDescription) names() bool {
	return d.Name != "" || len(d.Names) > 0 || d.Selector != nil || d.Annotations != nil
}

// addRules adds the rules for the kinds of a block.
func (m *ruleMatching) addRules(d resourceDescription, possible operationSet) error {
	operations := possible.namedOperations(d.Operations)
	if len(operations) == 0 {
		return nil
	}
	for _, text := range d.Kinds {
		k, ok := parseKind(text)
		if !ok {
			return fmt.Errorf("the kind %q is not of the form group/version/kind/subresource", text)
		}
		if k.kind == "*" {
			m.addRule([]string{"*"}, []string{"*"}, resourceName("*", k.subresource), operations)
			m.kinds = append(m.kinds, servedKind{GroupVersionKind: schema.GroupVersionKind{Kind: "*"}})
			continue
		}
		found := m.catalogue.find(k)
		if len(found) == 0 {
			found = []servedKind{guessKind(k)}
			m.notes = append(
				m.notes,
				fmt.Sprintf(
					"the resource of the kind %s is probably %s: correct the name in resourceRules, or add the "+
						"CustomResourceDefinition to the input",
					text,
					found[0].resource,
				),
			)
		}
		m.kinds = append(m.kinds, found...)
		byGroup := map[string][]string{}
		for _, s := range found {
			resources := []string{s.resource}
			if s.resource == "pods" { // Kyverno also matches containers that debug a Pod
				resources = append(resources, "pods/ephemeralcontainers")
			}
			for _, r := range resources {
				if !slices.Contains(byGroup[s.Group], r) {
					byGroup[s.Group] = append(byGroup[s.Group], r)
				}
			}
		}
		for _, g := range slices.Sorted(maps.Keys(byGroup)) {
			for _, resource := range byGroup[g] {
				m.addRule([]string{g}, []string{k.version}, resource, operations)
			}
		}
	}
	return nil
}

func resourceName(resource, subresource string) string {
	if subresource == "" {
		return resource
	}
	return resource + "/" + subresource
}

// addRule adds a resource to the rule with the same groups, versions and operations.
func (m *ruleMatching) addRule(
	groups,
	versions []string,
	resource string,
	operations []admissionregistrationv1.OperationType,
) {
	for i := range m.rules {
		r := &m.rules[i]
		if slices.Equal(r.APIGroups, groups) && slices.Equal(r.APIVersions, versions) &&
			slices.Equal(r.Operations, operations) {
			if !slices.Contains(r.Resources, resource) {
				r.Resources = append(r.Resources, resource)
			}
			return
		}
	}
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups:   groups,
			APIVersions: versions,
			Resources:   []string{resource},
		},
	}
	m.rules = append(m.rules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
}

// variableResource is the variable with the object of a request, also of a DELETE.
const variableResource = "resource"

// setObject finds the variable that has the object, and its type.
func (m *ruleMatching) setObject() {
	var kinds []schema.GroupVersionKind
	for _, k := range m.kinds {
		if !strings.Contains(k.resource, "/") || strings.HasSuffix(k.resource, "/ephemeralcontainers") ||
			strings.HasSuffix(k.resource, "/status") {
			kinds = append(kinds, k.GroupVersionKind)
		} else {
			kinds = append(kinds, schema.GroupVersionKind{})
		}
	}
	s := ce.ShapeOfKinds(kinds...)
	m.deletes = false
	others := false
	for _, r := range m.rules {
		for _, o := range r.Operations {
			isDelete := o == admissionregistrationv1.Delete
			m.deletes, others = m.deletes || isDelete || o == admissionregistrationv1.OperationAll, others || !isDelete
		}
	}
	switch {
	case m.deletes && others:
		m.object = ce.ObjectPlace("variables."+variableResource, s)
	case m.deletes:
		m.object, m.deletes = ce.ObjectPlace("oldObject", s), false
	default:
		m.object = ce.ObjectPlace("object", s)
	}
}

// oldObject returns the place of the old object, which is null unless the request is an
// UPDATE or a DELETE.
func (m *ruleMatching) oldObject() ce.Place {
	for _, r := range m.rules {
		for _, o := range r.Operations {
			if o != admissionregistrationv1.Update && o != admissionregistrationv1.Delete {
				return ce.NullableObjectPlace("oldObject", m.object.Shape)
			}
		}
	}
	return ce.ObjectPlace("oldObject", m.object.Shape)
}

// useObjectOf makes the expressions for the requests of other rules.
func (m *ruleMatching) useObjectOf(rules []admissionregistrationv1.NamedRuleWithOperations) {
	m.rules = rules
	m.setObject()
	m.kinds = append(m.kinds, servedKind{}) // the rules may match other kinds
}

// combine returns an expression for the blocks of match or exclude.
func (m *ruleMatching) combine(blocks []filter, all, withKinds bool) (ce.Expression, error) {
	var found []ce.Expression
	for i, b := range blocks {
		e, err := m.block(b, withKinds)
		if err != nil {
			return ce.False(), fmt.Errorf("[%d]: %w", i, err)
		}
		found = append(found, e)
	}
	if all {
		return ce.And(found...), nil
	}
	return ce.Or(found...), nil
}

// block returns an expression for one block: all of its fields have to match.
func (m *ruleMatching) block(f filter, withKinds bool) (ce.Expression, error) {
	d := f.Resources
	users, err := m.users(f)
	if err != nil {
		return ce.False(), err
	}
	all := []ce.Expression{users}
	if withKinds {
		kinds, err := m.kindsOf(d.Kinds)
		if err != nil {
			return ce.False(), err
		}
		all = append([]ce.Expression{kinds, matchOperations(d.Operations)}, all...)
	}
	name := m.object.Field("metadata").Field("name").Or(
		m.object.Field("metadata").Field("generateName").Or(`""`).String(),
	)
	if d.Name != "" {
		all = append(all, scalar.MatchWildcard(d.Name, name))
	}
	all = append(all, matchAny(d.Names, name), m.namespaces(d.Namespaces))
	for _, key := range slices.Sorted(maps.Keys(d.Annotations)) {
		all = append(all, matchEntry(m.object.Field("metadata").Field("annotations"), key, d.Annotations[key]))
	}
	for _, s := range []struct {
		selector *metav1.LabelSelector
		convert  func(*metav1.LabelSelector) (ce.Expression, error)
	}{{d.Selector, m.selector}, {d.NamespaceSelector, m.namespaceSelector}} {
		if s.selector == nil {
			continue
		}
		e, err := s.convert(s.selector)
		if err != nil {
			return ce.False(), err
		}
		all = append(all, e)
	}
	return ce.And(all...), nil
}

func matchOperations(operations []admissionregistrationv1.OperationType) ce.Expression {
	var literals []ce.Expression
	for _, o := range operations {
		literals = append(literals, ce.Quote(string(o)))
	}
	if len(literals) == 0 {
		return ce.True()
	}
	return scalar.OneOf(ce.Term("request.operation"), literals)
}

// matchAny returns an expression for a text that matches one of some patterns; true without
// patterns.
func matchAny(patterns []string, v ce.Expression) ce.Expression {
	if len(patterns) == 0 {
		return ce.True()
	}
	return scalar.MatchAny(v, patterns)
}

// kindsOf tests the kind of the object, unless all that the rule matches is of these kinds.
func (m *ruleMatching) kindsOf(kinds []string) (ce.Expression, error) {
	if len(kinds) == 0 {
		return ce.True(), nil
	}
	selected := make([]selectedKind, len(kinds))
	for i, text := range kinds {
		k, ok := parseKind(text)
		if !ok {
			return ce.False(), fmt.Errorf("the kind %q is not of the form group/version/kind/subresource", text)
		}
		selected[i] = k
	}
	if !slices.ContainsFunc(m.kinds, func(s servedKind) bool { return !coversKind(selected, s) }) {
		return ce.True(), nil
	}
	var some []ce.Expression
	for _, k := range selected {
		some = append(some, m.isKind(k))
	}
	return ce.Or(some...), nil
}

func coversKind(selected []selectedKind, s servedKind) bool {
	_, subresource, _ := strings.Cut(s.resource, "/")
	return slices.ContainsFunc(selected, func(k selectedKind) bool {
		return scalar.MatchesWildcard(k.group, s.Group) && scalar.MatchesWildcard(k.version, s.Version) &&
			scalar.MatchesWildcard(k.kind, s.Kind) && scalar.MatchesWildcard(k.subresource, subresource)
	})
}

// isKind tests the kind of the object. The templates of workloads are Pods, of which the
// request knows nothing.
func (m *ruleMatching) isKind(k selectedKind) ce.Expression {
	kind := ce.Term(m.object.Source().String() + ".kind")
	apiVersion := ce.Term(m.object.Source().String() + ".apiVersion")
	all := []ce.Expression{scalar.MatchWildcard(k.kind, kind)}
	switch {
	case k.group == "*" && k.version == "*":
	case k.group == "*":
		all = append(
			all,
			ce.Or(scalar.MatchWildcard(k.version, apiVersion), scalar.MatchWildcard("*/"+k.version, apiVersion)),
		)
	case k.group == "":
		all = append(all, scalar.MatchWildcard(k.version, apiVersion))
	default:
		all = append(all, scalar.MatchWildcard(k.group+"/"+k.version, apiVersion))
	}
	if k.subresource != "" {
		all = append(all, scalar.MatchWildcard(k.subresource, ce.Term(`request.?subResource.orValue("")`)))
	}
	return ce.And(all...)
}
