package policies

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// BenchmarkLoad is the load after one of 10,000 policies, in 100 groups, has
// changed: what every replica does for each change.
func BenchmarkLoad(b *testing.B) {
	const groups = 100
	l := newLoader(b)
	policies := make([]*v1alpha1.WebhookPolicy, 10_000)
	for i := range policies {
		p := newPolicy(fmt.Sprintf("policy-%05d", i), 1, fmt.Sprintf("object.metadata.name != 'n%d'", i))
		p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"group": fmt.Sprint(i % groups)}}
		policies[i] = &p
	}
	state := publish(l, policies, nil)
	var observed []registration.Configuration
	for i := range state.Plan.Groups {
		observed = append(observed, state.Plan.Groups[i].Configuration)
	}
	if len(observed) != groups {
		b.Fatalf("%d groups", len(observed))
	}
	generation := int64(1)
	for b.Loop() {
		generation++
		changed := *policies[0]
		changed.Generation = generation
		policies[0] = &changed
		publish(l, policies, observed)
	}
}
