package classic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// Limits of the fields of an exception object.
const (
	maxExceptionEntries = 16
	maxExceptionNames   = 64
	maxRuleName         = 60 // a rule with several validations adds a number
)

// excepted is what an exception exempts from one rule, as objects can say it.
type excepted struct {
	exception  *appliedException
	namespaces []string // empty for cluster-scoped objects
	match      []v1alpha1.ExceptionMatch
}

// exceptionEntries are entries for the objects in some namespaces.
type exceptionEntries struct {
	namespaces []string
	match      []v1alpha1.ExceptionMatch
}

// objects returns what the exception exempts from a rule, or false if objects do not express it exactly.
func (b *builder) objects(e *appliedException, out *convertedRule, c catalogue) (found []excepted, ok bool) {
	blocks, all := e.Spec.Match.filters()
	exact := len(out.validations) > 0 && !out.fails && !out.conditionsFail && len(out.mutations) == 0 &&
		len(out.name) <= maxRuleName && len(utilvalidation.IsDNS1123Label(out.name)) == 0 &&
		e.Spec.Conditions == nil && len(e.Spec.PodSecurity) == 0 && (!all || len(blocks) == 1)
	for _, f := range blocks {
		if !exact {
			return nil, false
		}
		var entries exceptionEntries
		if entries, exact = b.entries(e, f, out, c); len(entries.match) > 0 {
			found = append(found, excepted{e, entries.namespaces, entries.match})
		}
	}
	return found, exact && len(found) > 0
}

// entries returns the entries for one block of an exception.
func (b *builder) entries(e *appliedException, f filter, out *convertedRule, c catalogue) (exceptionEntries, bool) {
	d := f.Resources
	names := slices.Clone(d.Names)
	if d.Name != "" {
		names = append(names, d.Name)
	}
	namespaces := d.Namespaces
	if b.Source.Kind == kindPolicy && (len(namespaces) == 0 || slices.Contains(namespaces, b.namespace())) {
		namespaces = []string{b.namespace()}
	}
	if f.hasOtherParts() || !areNames(names) || slices.ContainsFunc(namespaces, scalar.HasWildcard) {
		return exceptionEntries{}, false
	}
	byGroup, ok := b.exemptResources(e, d.Kinds, out, c, len(namespaces) > 0)
	if !ok || b.extendsRule(out) && d.Selector != nil {
		return exceptionEntries{}, false
	}
	made := exceptionEntries{namespaces: namespaces}
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		made.match = append(made.match, v1alpha1.ExceptionMatch{
			Group: group, Resources: byGroup[group], Names: names, ObjectSelector: d.Selector,
		})
	}
	return made, len(made.match) <= maxExceptionEntries
}

// hasOtherParts reports whether a block selects by what exception objects do not have.
func (f filter) hasOtherParts() bool {
	d := f.Resources
	lists := len(f.Roles) + len(f.ClusterRoles) + len(f.Subjects) + len(d.Annotations) + len(d.Operations)
	return lists > 0 || d.NamespaceSelector != nil || d.Name != "" && len(d.Names) > 0 || len(d.Kinds) == 0 ||
		!isPlainSelector(d.Selector)
}

// extendsRule reports whether the rule is extended to pod templates.
func (b *builder) extendsRule(out *convertedRule) bool {
	return out.extends && b.extends() && len(b.controllerKinds()) > 0
}

// exemptResources returns the resources of some kinds, by group: those for which the exception names the rule, or
// the rule that Kyverno generates for workloads. All of them have, or none has, a namespace.
func (b *builder) exemptResources(
	e *appliedException, kinds []string, out *convertedRule, c catalogue, namespaced bool,
) (map[string][]string, bool) {
	byGroup := map[string][]string{}
	for _, text := range kinds {
		found := exactKind(text, c)
		if len(found) == 0 || slices.ContainsFunc(found, func(s servedKind) bool { return s.namespaced != namespaced }) {
			return nil, false
		}
		for _, s := range found {
			if !b.exempts(e, s, out) {
				continue
			}
			for _, r := range exemptOf(s.resource) {
				if !slices.Contains(byGroup[s.Group], r) {
					byGroup[s.Group] = append(byGroup[s.Group], r)
				}
			}
		}
	}
	return byGroup, true
}

// exactKind returns the resources of a kind; nil if the text does not name one kind in all of its versions.
func exactKind(text string, c catalogue) []servedKind {
	k, ok := parseKind(text)
	if !ok || scalar.HasWildcard(k.kind) || k.subresource != "" || k.version != "*" && !servesOneVersion(c, k) {
		return nil
	}
	return c.find(k)
}

// exempts reports whether the exception names the rule that Kyverno evaluates for a kind.
func (b *builder) exempts(e *appliedException, s servedKind, out *convertedRule) bool {
	rule := out.name
	if b.extendsRule(out) && slices.Contains(b.controllerKinds(), s.Kind) && controllerResources()[s.Kind] == s.resource {
		rule = "autogen-" + out.name
		if s.Kind == "CronJob" {
			rule = "autogen-cronjob-" + out.name
		}
	}
	return e.refersTo(b.source, rule)
}

// exemptOf returns a resource with what Kyverno matches with it.
func exemptOf(resource string) []string {
	if resource == "pods" {
		return []string{resource, "pods/ephemeralcontainers"}
	}
	return []string{resource}
}

// servesOneVersion reports whether a kind has only the version that is selected.
func servesOneVersion(c catalogue, k selectedKind) bool {
	selected := c.find(k)
	k.version = "*"
	return len(selected) == len(c.find(k))
}

// areNames reports whether exceptions can have some names: at most one wildcard, which is "*".
func areNames(names []string) bool {
	return len(names) <= maxExceptionNames && !slices.ContainsFunc(names, func(n string) bool {
		return n == "" || strings.Contains(n, "?") || strings.Count(n, "*") > 1
	})
}

// isPlainSelector reports whether Kubernetes and Kyverno select the same labels.
func isPlainSelector(s *metav1.LabelSelector) bool {
	if s == nil {
		return true
	}
	for key, value := range s.MatchLabels {
		if scalar.HasWildcard(key + value) {
			return false
		}
	}
	_, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// addExceptionObjects adds the objects for the exceptions of a group of rules, which are one policy.
func (b *builder) addExceptionObjects(o *conversion.Output, group []placedRule) {
	for _, r := range group {
		for _, x := range r.excepted {
			if len(r.row.Validations) == 0 {
				x.exception.failed = append(x.exception.failed, fmt.Sprintf("for the rule %s: its validations have no names", r.name))
				continue
			}
			o.Policy().Spec.Exceptions = &v1alpha1.Exceptions{}
			namespaces := x.namespaces
			if len(namespaces) == 0 {
				namespaces = []string{""}
			}
			for _, namespace := range namespaces {
				x.exception.addObject(o, namespace, x.match, r.row.Validations)
			}
		}
	}
}

// addObject adds what an exception exempts from validations of a policy to its object in a namespace.
func (e *appliedException) addObject(policy *conversion.Output, namespace string, match []v1alpha1.ExceptionMatch, validations []string) {
	e.used = true
	name := nameOf(e.Name)
	for _, o := range e.outputs {
		x := o.Object.(v1alpha1.Exception)
		if o.Of == policy && x.GetNamespace() == namespace && slices.Equal(x.GetSpec().Validations, validations) &&
			len(x.GetSpec().Match)+len(match) <= maxExceptionEntries {
			x.GetSpec().Match = append(x.GetSpec().Match, match...)
			return
		}
		if x.GetNamespace() == namespace && !strings.Contains(name, policy.Object.GetName()) {
			name = nameOf(e.Name + "-" + policy.Object.GetName())
		}
	}
	spec := v1alpha1.WebhookPolicyExceptionSpec{
		PolicyName: policy.Object.GetName(), Validations: validations, Match: match,
		Reason: fmt.Sprintf("the PolicyException %s/%s of Kyverno", e.Namespace, e.Name),
	}
	metadata := conversion.Metadata(e.ObjectMeta)
	metadata.Name, metadata.Namespace = name, namespace
	kind := metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicyException"}
	o := &conversion.Output{Of: policy, Object: &v1alpha1.WebhookPolicyException{TypeMeta: kind, ObjectMeta: metadata, Spec: spec}}
	if namespace == "" {
		kind.Kind = "ClusterWebhookPolicyException"
		o.Object = &v1alpha1.ClusterWebhookPolicyException{TypeMeta: kind, ObjectMeta: metadata, Spec: spec}
	}
	e.outputs = append(e.outputs, o)
}
