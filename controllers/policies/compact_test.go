package policies

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestCompact(t *testing.T) {
	l := newLoader(t)
	load(l, nil, newPolicy("loaded", 2, "true"))
	received := func(name string, generation int64, expression string) *v1alpha1.WebhookPolicy {
		p := newPolicy(name, generation, expression)
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}
		p.Status = v1alpha1.WebhookPolicyStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Enforced", Message: string([]byte("enforced"))}},
			Webhooks:   []v1alpha1.WebhookReference{{Kind: "ValidatingWebhookConfiguration", Configuration: "c", Webhook: "w"}},
		}
		return &p
	}
	tests := map[string]struct {
		policy     *v1alpha1.WebhookPolicy
		wantShared bool
	}{
		"loaded generation":  {policy: received("loaded", 2, "true"), wantShared: true},
		"another generation": {policy: received("loaded", 3, "false")},
		"another policy":     {policy: received("new", 2, "true")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := tc.policy.DeepCopy()
			want.ManagedFields, want.Annotations = nil, map[string]string{"a": "b"}
			got, err := l.Store.Compact(tc.policy)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := got.(*v1alpha1.WebhookPolicy)
			if diff := cmp.Diff(want, p); diff != "" {
				t.Fatalf("policy (-want +got):\n%s", diff)
			}
			if got := p.Spec.MatchConstraints == l.Store.State().Entries["uid-loaded"].Policy.Spec.MatchConstraints; got != tc.wantShared {
				t.Errorf("shares the spec of the loaded policy: %t, want %t", got, tc.wantShared)
			}
			other := received("other", 1, "true")
			if _, err := l.Store.Compact(other); err != nil {
				t.Fatal(err)
			}
			if unsafe.StringData(p.Status.Conditions[0].Message) != unsafe.StringData(other.Status.Conditions[0].Message) {
				t.Error("equal messages take memory twice")
			}
		})
	}
}

func TestCompactKeepsOtherObjects(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	got, err := new(Store).Compact(namespace)
	if diff := cmp.Diff(any(namespace.DeepCopy()), got); diff != "" || err != nil {
		t.Errorf("Compact() = %v, (-want +got):\n%s", err, diff)
	}
}

// The cache and the loaded entry do not keep two versions of a policy.
func TestEntriesHaveTheVersionInTheCache(t *testing.T) {
	l := newLoader(t)
	version := func(v string) v1alpha1.WebhookPolicy {
		p := newPolicy("p", 2, "true")
		p.ResourceVersion = v
		return p
	}
	first := load(l, nil, version("10"))
	second := load(l, first, version("20"))
	third := load(l, second, version("30")).Entries["uid-p"]
	if third.Policy.ResourceVersion != "30" || third.LoadedVersion() != "10" {
		t.Errorf("the entry has version %s and was loaded in %s, want 30 and 10", third.Policy.ResourceVersion, third.LoadedVersion())
	}
	old := first.Entries["uid-p"]
	if third.Compiled != old.Compiled {
		t.Error("a version of the same generation is compiled again")
	}
	if old.Policy.ResourceVersion != "10" {
		t.Error("the entry of an earlier state has changed")
	}
}
