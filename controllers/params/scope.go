package params

import (
	"cmp"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// maxWatchesOfKind and maxWatches bound the watches of a kind and of all kinds. Above
	// them, scopes are merged. There is always at least one watch for each kind.
	maxWatchesOfKind = 16
	maxWatches       = 64
)

// scope is what a paramRef can select.
type scope struct {
	namespace string                // "" means the namespace of the request, so all
	name      string                // "" means all names
	selector  *metav1.LabelSelector // nil means all labels
}

func scopeOf(ref *admissionregistrationv1.ParamRef) scope {
	if ref == nil {
		return scope{}
	}
	s := scope{namespace: ref.Namespace, name: ref.Name, selector: ref.Selector}
	if s.name != "" || s.selector != nil && len(s.selector.MatchLabels)+len(s.selector.MatchExpressions) == 0 {
		s.selector = nil
	}
	return s
}

// covers reports whether a watch of s has everything that other selects. It allocates
// nothing, because each request with params calls it.
func (s scope) covers(other scope) bool {
	return (s.namespace == "" || s.namespace == other.namespace) && (s.name == "" || s.name == other.name) &&
		(s.selector == nil || other.selector != nil && sameSelector(s.selector, other.selector))
}

// overlaps reports whether an object can be in both scopes, as far as namespaces and names
// tell.
func (s scope) overlaps(other scope) bool {
	return (s.namespace == "" || other.namespace == "" || s.namespace == other.namespace) &&
		(s.name == "" || other.name == "" || s.name == other.name)
}

func sameSelector(a, b *metav1.LabelSelector) bool {
	return a == b || maps.Equal(a.MatchLabels, b.MatchLabels) &&
		slices.EqualFunc(a.MatchExpressions, b.MatchExpressions, func(a, b metav1.LabelSelectorRequirement) bool {
			return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
		})
}

// listOptions returns what limits a list or a watch to the scope.
func (s scope) listOptions(o metav1.ListOptions) metav1.ListOptions {
	if s.name != "" {
		o.FieldSelector = "metadata.name=" + s.name
	}
	if s.selector != nil {
		o.LabelSelector = metav1.FormatLabelSelector(s.selector)
	}
	return o
}

// compare orders scopes: a smaller one comes before those that cover it.
func (s scope) compare(other scope) int {
	return cmp.Or(
		-cmp.Compare(min(len(s.name), 1), min(len(other.name), 1)), -cmp.Compare(min(len(s.namespace), 1), min(len(other.namespace), 1)),
		cmp.Compare(s.namespace, other.namespace), cmp.Compare(s.name, other.name), -cmp.Compare(s.labels(), other.labels()),
	)
}

func (s scope) labels() string {
	if s.selector == nil {
		return ""
	}
	return metav1.FormatLabelSelector(s.selector)
}

// selected is a scope with the parts of objects that policies read.
type selected struct {
	scope
	parts unstructuredjson.Selection
}

// planScopes returns the scopes to watch for each kind. It ignores kinds that cannot exist.
func planScopes(needs []policy.ParamNeed) map[schema.GroupVersionKind][]selected {
	out := map[schema.GroupVersionKind][]selected{}
	for _, n := range needs {
		gvk, err := parse(&n.Kind)
		if err != nil {
			continue // State, CheckKind and Params return the error
		}
		out[gvk] = addScope(out[gvk], selected{scopeOf(n.Ref), n.Reads})
	}
	for gvk := range out {
		out[gvk] = mergeScopes(out[gvk], maxWatchesOfKind)
	}
	for {
		largest, sum := schema.GroupVersionKind{}, 0
		for gvk, scopes := range out {
			sum += len(scopes)
			if n := cmp.Or(cmp.Compare(len(scopes), len(out[largest])), cmp.Compare(largest.String(), gvk.String())); n > 0 {
				largest = gvk
			}
		}
		if sum <= maxWatches || len(out[largest]) <= 1 {
			break
		}
		out[largest] = mergeScopes(out[largest], len(out[largest])-1)
	}
	for _, scopes := range out {
		slices.SortFunc(scopes, func(a, b selected) int { return a.compare(b.scope) })
	}
	return out
}

// addScope adds a scope, or joins it with an equal one.
func addScope(scopes []selected, s selected) []selected {
	for i := range scopes {
		if scopes[i].covers(s.scope) && s.covers(scopes[i].scope) {
			scopes[i].parts = scopes[i].parts.Union(s.parts)
			return scopes
		}
	}
	return append(scopes, s)
}

// mergeScopes merges the scopes of the namespace with most of them, until at most limit are
// left. If no namespace has two, it merges all.
func mergeScopes(scopes []selected, limit int) []selected {
	for len(scopes) > limit {
		counts := map[string]int{}
		for _, s := range scopes {
			counts[s.namespace]++
		}
		delete(counts, "") // its watch covers those of all namespaces
		into := scope{}
		for namespace, n := range counts {
			if cmp.Or(cmp.Compare(n, max(counts[into.namespace], 1)), cmp.Compare(into.namespace, namespace)) > 0 && n > 1 {
				into.namespace = namespace
			}
		}
		scopes = mergeInto(scopes, into)
	}
	return scopes
}

func mergeInto(scopes []selected, into scope) (out []selected) {
	merged := selected{scope: into}
	for _, s := range scopes {
		if into.covers(s.scope) {
			merged.parts = merged.parts.Union(s.parts)
		} else {
			out = append(out, s)
		}
	}
	return append(out, merged)
}
