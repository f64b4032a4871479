package sources

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func readerOf(names ...string) client.Reader {
	b := fake.NewClientBuilder()
	for _, name := range names {
		b.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}}})
	}
	return b.Build()
}

// TestNamespaces checks that only missing namespaces are read from the API server, and
// none for the lister.
func TestNamespaces(t *testing.T) {
	namespaces := Namespaces{Cached: readerOf("old"), Live: readerOf("old", "new")}
	lister := NamespaceLister{namespaces}
	tests := map[string]struct{ wantFound, wantListed bool }{
		"old": {wantFound: true, wantListed: true}, "new": {wantFound: true}, "none": {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if ns, err := namespaces.GetNamespace(t.Context(), name); (err == nil) != tc.wantFound ||
				err == nil && ns.Labels["team"] != name || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("GetNamespace() = %v, %v, want found: %t", ns, err, tc.wantFound)
			}
			if ns, err := lister.Get(name); (err == nil) != tc.wantListed || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("Get() = %v, %v, want found: %t", ns, err, tc.wantListed)
			}
			list, err := lister.List(labels.SelectorFromSet(labels.Set{"team": name}))
			if err != nil || (len(list) == 1) != tc.wantListed {
				t.Errorf("List() = %v, %v, want found: %t", list, err, tc.wantListed)
			}
		})
	}
}

// TestLargeNamespaces checks that a cached namespace is bounded, and that its labels and
// annotations are read from the API server.
func TestLargeNamespaces(t *testing.T) {
	ns := func(size int) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "team", UID: "u", Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{"note": strings.Repeat("x", size)},
		}}
	}
	for name, size := range map[string]int{"small": 10, "large": maxNamespace} {
		t.Run(name, func(t *testing.T) {
			stored := ns(size)
			stored.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			cached, err := CompactNamespace(stored)
			if err != nil {
				t.Fatal(err)
			}
			if got := cached.(*corev1.Namespace); got.Size() > maxNamespace || got.ManagedFields != nil || got.Name != "team" || got.UID != "u" {
				t.Errorf("cached: %d bytes of %s", got.Size(), got.Name)
			}
			namespaces := Namespaces{
				Cached: fake.NewClientBuilder().WithObjects(cached.(*corev1.Namespace)).Build(),
				Live:   fake.NewClientBuilder().WithObjects(ns(size)).Build(),
			}
			got, err := namespaces.GetNamespace(t.Context(), "team")
			if err != nil || got.Labels["team"] != "a" || len(got.Annotations["note"]) != size {
				t.Errorf("GetNamespace() = %v, %v", got, err)
			}
			_, err = NamespaceLister{namespaces}.Get("team")
			if large := size == maxNamespace; apierrors.IsNotFound(err) != large {
				t.Errorf("Get() error = %v: a matcher reads large namespaces itself", err)
			}
			if _, err := (NamespaceLister{namespaces}).List(labels.Everything()); (err != nil) != (size == maxNamespace) {
				t.Errorf("List() error = %v", err)
			}
		})
	}
}

func TestNeedsResources(t *testing.T) {
	rule := func(names ...string) []admissionregistrationv1.NamedRuleWithOperations {
		return []admissionregistrationv1.NamedRuleWithOperations{{ResourceNames: names}}
	}
	tests := map[string]struct {
		spec v1alpha1.WebhookPolicySpec
		want bool
	}{
		"nothing": {spec: v1alpha1.WebhookPolicySpec{}},
		"rules": {
			spec: v1alpha1.WebhookPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rule()}},
		},
		"names": {
			spec: v1alpha1.WebhookPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rule("a")},
			},
			want: true,
		},
		"excluded": {
			spec: v1alpha1.WebhookPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ExcludeResourceRules: rule()},
			},
			want: true,
		},
		"mutation": {spec: v1alpha1.WebhookPolicySpec{Mutations: make([]admissionregistrationv1.Mutation, 1)}, want: true},
		"binding":  {spec: v1alpha1.WebhookPolicySpec{Bindings: []v1alpha1.Binding{{Name: "all"}}}},
		"matching binding": {spec: v1alpha1.WebhookPolicySpec{Bindings: []v1alpha1.Binding{
			{Name: "all"}, {Name: "some", MatchResources: &admissionregistrationv1.MatchResources{}}}}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := needsResources(&v1alpha1.WebhookPolicy{Spec: tc.spec}); got != tc.want {
				t.Errorf("needsResources() = %t, want %t", got, tc.want)
			}
		})
	}
}
