package params

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// described are the scopes of a kind, as "namespace/name?labels".
func described(scopes []selected) (out []string) {
	for _, s := range scopes {
		out = append(out, s.namespace+"/"+s.name+"?"+s.labels())
	}
	return out
}

func TestPlanScopes(t *testing.T) {
	team := func(name string) func(*admissionregistrationv1.ParamRef) {
		return selecting(map[string]string{"team": name})
	}
	expression := func(r *admissionregistrationv1.ParamRef) {
		r.Selector = &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			},
		}
	}
	many := func(n int, namespace string) (out []*admissionregistrationv1.ParamRef) {
		for i := range n {
			out = append(out, ref(namespace, fmt.Sprint("c", i)))
		}
		return out
	}
	tests := map[string]struct {
		refs []*admissionregistrationv1.ParamRef
		want []string
	}{
		"a name in a namespace": {
			refs: []*admissionregistrationv1.ParamRef{ref("b", "limits")},
			want: []string{"b/limits?"},
		},
		"a name in the namespace of the request": {
			refs: []*admissionregistrationv1.ParamRef{ref("", "limits")},
			want: []string{"/limits?"},
		},
		"labels in a namespace": {
			refs: []*admissionregistrationv1.ParamRef{ref("b", "", team("x"))},
			want: []string{"b/?team=x"},
		},
		"expressions": {
			refs: []*admissionregistrationv1.ParamRef{ref("", "", expression)},
			want: []string{"/?tier in (a,b)"},
		},
		"all objects": {refs: []*admissionregistrationv1.ParamRef{ref("", "", selecting(nil))}, want: []string{"/?"}},
		"equal scopes are shared": {refs: []*admissionregistrationv1.ParamRef{
			ref("b", "limits"), ref("b", "limits", denying), ref("", "", team("x")), ref("", "", team("x")),
		},
			want: []string{"b/limits?", "/?team=x"}},
		"small scopes first": {refs: []*admissionregistrationv1.ParamRef{
			ref("", "", selecting(nil)), ref("", "", team("x")), ref("b", "", selecting(nil)), ref("", "n"), ref("b", "n"),
		},
			want: []string{"b/n?", "/n?", "b/?", "/?team=x", "/?"}},
		"as many as allowed": {
			refs: many(maxWatchesOfKind, "b"),
			want: described(planScopes(needsOf(configMaps, many(maxWatchesOfKind, "b")...))[gvkOf(t, configMaps)]),
		},
		"too many in a namespace": {
			refs: append(many(maxWatchesOfKind, "b"), ref("other", "n")),
			want: []string{"other/n?", "b/?"},
		},
		"too many namespaces": {refs: namespaces(maxWatchesOfKind + 1), want: []string{"/?"}},
		"too many names":      {refs: many(maxWatchesOfKind+1, ""), want: []string{"/?"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			scopes := planScopes(needsOf(configMaps, tc.refs...))[gvkOf(t, configMaps)]
			if diff := cmp.Diff(tc.want, described(scopes)); diff != "" {
				t.Errorf("scopes (-want +got):\n%s", diff)
			}
			for _, r := range tc.refs {
				if !covered(scopes, r) {
					t.Errorf("no watch has what %v selects", r)
				}
			}
		})
	}
}

func covered(scopes []selected, r *admissionregistrationv1.ParamRef) bool {
	for _, s := range scopes {
		if s.covers(scopeOf(r)) {
			return true
		}
	}
	return false
}

func namespaces(n int) (out []*admissionregistrationv1.ParamRef) {
	for i := range n {
		out = append(out, ref(fmt.Sprint("n", i), "limits"))
	}
	return out
}

func needsOf(kind admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) (out []policy.ParamNeed) {
	for _, r := range refs {
		out = append(out, policy.ParamNeed{Kind: kind, Ref: r, Reads: policy.WholeParams()})
	}
	return out
}

// TestWatchesAreBounded plans many scopes of many kinds.
func TestWatchesAreBounded(t *testing.T) {
	var needs []policy.ParamNeed
	for i := range 10 {
		kind := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: fmt.Sprint("Kind", i)}
		needs = append(needs, needsOf(kind, namespaces(maxWatchesOfKind)...)...)
	}
	plan, sum := planScopes(needs), 0
	for _, scopes := range plan {
		sum += len(scopes)
	}
	if len(plan) != 10 || sum > maxWatches || sum < maxWatches/2 {
		t.Errorf("%d watches of %d kinds, want at most %d of 10", sum, len(plan), maxWatches)
	}
	for _, n := range needs {
		if !covered(plan[gvkOf(t, n.Kind)], n.Ref) {
			t.Errorf("no watch has what %v of %v selects", n.Ref, n.Kind)
		}
	}
}

// TestPartsOfSharedScopes checks that a shared watch keeps what any policy reads.
func TestPartsOfSharedScopes(t *testing.T) {
	one, two := unstructuredjson.Path("data", "one"), unstructuredjson.Path("data", "two")
	needs := needsOf(configMaps, ref("b", "n"), ref("b", "n"))
	needs[0].Reads, needs[1].Reads = one, two
	parts := planScopes(needs)[gvkOf(t, configMaps)][0].parts
	if !parts.Covers(one) || !parts.Covers(two) || parts.Covers(unstructuredjson.Path("data")) {
		t.Errorf("parts %+v", parts)
	}
}
