package rehearsal

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/apiresources"
)

// satisfy returns labels that all of some selectors select; ok is false if there are none.
func satisfy(selectors ...*metav1.LabelSelector) (set map[string]string, ok bool) {
	set = map[string]string{}
	for _, s := range selectors {
		for key := range labelsOf(s) {
			set[key] = choose(selectors, key)
		}
		for _, r := range requirements(s) {
			if r.Operator == metav1.LabelSelectorOpExists || r.Operator == metav1.LabelSelectorOpIn {
				set[r.Key] = choose(selectors, r.Key)
			}
		}
	}
	for _, s := range selectors {
		if s == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return set, true // the policy is rejected
		}
		if !selector.Matches(labels.Set(set)) {
			return nil, false
		}
	}
	return set, true
}

// choose returns a value of a label that all selectors allow, or any if there is none.
func choose(selectors []*metav1.LabelSelector, key string) string {
	values, restricted := []string{"probe", "probe-2"}, false
	restrict := func(to []string) {
		if !restricted {
			values, restricted = slices.Clone(to), true
			return
		}
		values = slices.DeleteFunc(values, func(v string) bool { return !slices.Contains(to, v) })
	}
	for _, s := range selectors {
		if value, ok := labelsOf(s)[key]; ok {
			restrict([]string{value})
		}
		for _, r := range requirements(s) {
			if r.Key == key && r.Operator == metav1.LabelSelectorOpIn {
				restrict(r.Values)
			}
		}
	}
	for _, value := range values {
		if !slices.ContainsFunc(selectors, func(s *metav1.LabelSelector) bool { return forbids(s, key, value) }) {
			return value
		}
	}
	return "probe"
}

func labelsOf(s *metav1.LabelSelector) map[string]string {
	if s == nil {
		return nil
	}
	return s.MatchLabels
}

func requirements(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	if s == nil {
		return nil
	}
	return s.MatchExpressions
}

func forbids(s *metav1.LabelSelector, key, value string) bool {
	return slices.ContainsFunc(requirements(s), func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == key && r.Operator == metav1.LabelSelectorOpNotIn && slices.Contains(r.Values, value)
	})
}

// selects reports whether a selector selects some objects and others not.
func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// unmatchedTargets warns about selectors and exclusions that match nothing, or that do not do what
// their author expects.
func unmatchedTargets(spec *v1alpha1.WebhookPolicySpec, targets []target) (out []advice.Warning) {
	m := spec.MatchConstraints
	if m == nil {
		return nil
	}
	at := field.NewPath("spec", "matchConstraints")
	warn := func(at *field.Path, text string) {
		out = append(out, advice.Warning{Field: at.String(), Text: text})
	}
	if _, ok := satisfy(m.ObjectSelector); !ok {
		warn(at.Child("objectSelector"),
			"no labels satisfy all of its requirements, so the policy matches nothing: correct them")
	}
	if _, ok := satisfy(m.NamespaceSelector); !ok {
		warn(at.Child("namespaceSelector"), "no labels satisfy all of its requirements, "+
			"so the policy matches no namespaced object: correct them")
	}
	for i := range spec.Bindings {
		b := spec.Bindings[i].MatchResources
		if b == nil {
			continue
		}
		here := field.NewPath("spec", "bindings").Index(i).Child("matchResources")
		if _, ok := satisfy(m.ObjectSelector, b.ObjectSelector); !ok {
			warn(here.Child("objectSelector"), "no labels satisfy it and the objectSelector of the policy, "+
				"so the binding matches nothing: correct one of them")
		}
		if _, ok := satisfy(m.NamespaceSelector, b.NamespaceSelector); !ok {
			warn(here.Child("namespaceSelector"), "no labels satisfy it and the namespaceSelector of the policy, "+
				"so the binding matches no namespaced object: correct one of them")
		}
	}
	if len(targets) > 0 && !slices.ContainsFunc(targets, func(t target) bool { return !t.excluded }) {
		warn(at.Child("excludeResourceRules"), "they exclude everything that resourceRules match, "+
			"so the policy matches nothing: correct one of them")
	}
	return append(out, unlabelled(m.ObjectSelector, m.NamespaceSelector, targets)...)
}

// unlabelled warns about an objectSelector for requests whose objects have no labels, and about a
// namespaceSelector for objects without a namespace.
func unlabelled(object, namespace *metav1.LabelSelector, targets []target) (out []advice.Warning) {
	at := field.NewPath("spec", "matchConstraints")
	if selector, err := metav1.LabelSelectorAsSelector(object); err == nil && selects(object) {
		for i := range targets {
			t := &targets[i]
			lacks, metadata := lacksLabels(t)
			if t.named && lacks && (!metadata || !selector.Matches(labels.Set{})) {
				out = append(out, advice.Warning{Field: at.Child("objectSelector").String(), Text: fmt.Sprintf(
					"requests for %q are of kind %s, which has no labels of the %s, so none matches: "+
						"match it in a policy without objectSelector", t.name(), t.GroupVersionKind.Kind, t.resource)})
			}
		}
	}
	scoped := func(t target) bool { return t.namespaced || t.resource == "namespaces" }
	if selects(namespace) && len(targets) > 0 && !slices.ContainsFunc(targets, scoped) {
		out = append(out, advice.Warning{Field: at.Child("namespaceSelector").String(), Text: fmt.Sprintf(
			"%s are cluster-scoped, and a namespaceSelector does not restrict them: every one matches; remove it",
			targets[0].name())})
	}
	return out
}

// lacksLabels reports whether the objects of requests for a subresource have no labels, and
// whether they have metadata at all. Those of a Scale are not the labels of the workload.
func lacksLabels(t *target) (lacks, metadata bool) {
	switch t.GroupVersionKind.Kind {
	case "Scale", "Eviction", "Binding", "TokenRequest":
		return t.subresource != "", true
	case "PodExecOptions", "PodAttachOptions", "PodPortForwardOptions", "PodProxyOptions", "ServiceProxyOptions",
		"NodeProxyOptions":
		return true, false
	}
	return false, true
}

// clusterScopedParams warns about params that are looked for in the namespace of requests that
// have none.
func clusterScopedParams(spec *v1alpha1.WebhookPolicySpec, targets []target,
	served apiresources.Lists) (out []advice.Warning) {
	kind := spec.ParamKind
	if kind == nil || !isNamespaced(served, kind.APIVersion, kind.Kind) {
		return nil
	}
	i := slices.IndexFunc(targets, func(t target) bool { return !t.namespaced && t.resource != "namespaces" && t.named })
	if i < 0 {
		return nil
	}
	for j, b := range spec.Bindings {
		if b.ParamRef == nil || b.ParamRef.Namespace != "" {
			continue
		}
		at := field.NewPath("spec", "bindings").Index(j).Child("paramRef")
		out = append(out, advice.Warning{Field: at.String(), Text: fmt.Sprintf(
			"%s are cluster-scoped, so their requests have no namespace in which a %s could be found, "+
				"and fail: set paramRef.namespace", targets[i].name(), kind.Kind)})
	}
	return out
}

func isNamespaced(served apiresources.Lists, apiVersion, kind string) bool {
	for gv, list := range served {
		if gv.String() != apiVersion {
			continue
		}
		for i := range list {
			if list[i].Kind == kind {
				return list[i].Namespaced
			}
		}
	}
	return false
}
