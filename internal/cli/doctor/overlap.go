package doctor

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// shared returns a resource for which both webhooks can be called, "" if there is none.
// It ignores match conditions.
func (c *checker) shared(a, b *webhook) string {
	for _, x := range a.Rules {
		for _, y := range b.Rules {
			resource := common(x, y, a.exact() && b.exact())
			if resource != "" && c.sharedObjects(a, b) {
				return resource
			}
		}
	}
	return ""
}

// common returns a resource that both rules match for an operation that can change
// objects, the more specific of their patterns.
func common(a, b admissionregistrationv1.RuleWithOperations, exact bool) string {
	if !commonOperation(a.Operations, b.Operations) || !commonName(a.APIGroups, b.APIGroups) || exact && !commonName(a.APIVersions, b.APIVersions) || !commonScope(a.Scope, b.Scope) {
		return ""
	}
	for _, x := range a.Resources {
		for _, y := range b.Resources {
			if resource := commonResource(x, y); resource != "" {
				return resource
			}
		}
	}
	return ""
}

func commonOperation(a, b []admissionregistrationv1.OperationType) bool {
	return slices.ContainsFunc([]admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Connect},
		func(o admissionregistrationv1.OperationType) bool { return hasOperation(a, o) && hasOperation(b, o) })
}

func hasOperation(list []admissionregistrationv1.OperationType, o admissionregistrationv1.OperationType) bool {
	return slices.Contains(list, o) || slices.Contains(list, admissionregistrationv1.OperationAll)
}

func commonName(a, b []string) bool {
	return slices.Contains(a, wildcard) || slices.Contains(b, wildcard) || slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

func commonScope(a, b *admissionregistrationv1.ScopeType) bool {
	all := func(s *admissionregistrationv1.ScopeType) bool {
		return s == nil || *s == admissionregistrationv1.AllScopes
	}
	return all(a) || all(b) || *a == *b
}

// commonResource returns the resource that two patterns have in common, such as
// pods/status for pods/* and */status.
func commonResource(a, b string) string {
	aName, aSub, _ := strings.Cut(a, "/")
	bName, bSub, _ := strings.Cut(b, "/")
	name, ok := narrower(aName, bName)
	sub, okSub := narrower(aSub, bSub)
	switch {
	case !ok || !okSub:
		return ""
	case sub == "":
		return name
	}
	return name + "/" + sub
}

// narrower returns the more specific of two patterns of which one includes the other.
func narrower(a, b string) (string, bool) {
	switch {
	case a == wildcard:
		return b, true
	case b == wildcard || a == b:
		return a, true
	}
	return "", false
}

// sharedObjects reports whether an object can have labels, in a namespace with labels,
// that the selectors of both webhooks select.
func (c *checker) sharedObjects(a, b *webhook) bool {
	if disjoint(a.ObjectSelector, b.ObjectSelector) || disjoint(a.NamespaceSelector, b.NamespaceSelector) {
		return false
	}
	if c.Namespaces == nil || empty(a.NamespaceSelector) && empty(b.NamespaceSelector) {
		return true
	}
	x, errX := a.accessor.GetParsedNamespaceSelector()
	y, errY := b.accessor.GetParsedNamespaceSelector()
	if errX != nil || errY != nil {
		return false
	}
	for i := range c.Namespaces {
		if set := labels.Set(c.Namespaces[i].Labels); x.Matches(set) && y.Matches(set) {
			return true
		}
	}
	return false
}

func empty(s *metav1.LabelSelector) bool { return len(s.MatchLabels)+len(s.MatchExpressions) == 0 }

// disjoint reports whether no set of labels matches both selectors.
func disjoint(a, b *metav1.LabelSelector) bool {
	return slices.ContainsFunc(requirements(a), func(x metav1.LabelSelectorRequirement) bool {
		return slices.ContainsFunc(requirements(b), func(y metav1.LabelSelectorRequirement) bool {
			return x.Key == y.Key && (contradicts(x, y) || contradicts(y, x))
		})
	})
}

func requirements(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	out := slices.Clone(s.MatchExpressions)
	for key, value := range s.MatchLabels {
		out = append(out, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	return out
}

// contradicts reports whether no value of a label, and no missing label, meets both
// requirements, in one of the two orders.
func contradicts(a, b metav1.LabelSelectorRequirement) bool {
	included := func(values []string) bool {
		return slices.ContainsFunc(a.Values, func(v string) bool { return slices.Contains(values, v) })
	}
	switch a.Operator {
	case metav1.LabelSelectorOpIn:
		switch b.Operator {
		case metav1.LabelSelectorOpIn:
			return !included(b.Values)
		case metav1.LabelSelectorOpNotIn:
			return !slices.ContainsFunc(a.Values, func(v string) bool { return !slices.Contains(b.Values, v) })
		case metav1.LabelSelectorOpDoesNotExist:
			return true
		}
	case metav1.LabelSelectorOpExists:
		return b.Operator == metav1.LabelSelectorOpDoesNotExist
	}
	return false
}
