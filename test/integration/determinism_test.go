package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// Promise: deterministic: the order in which policies come does not show.
func TestSamePoliciesSameConfigurations(t *testing.T) {
	c := install(t)
	c.manager(t)
	c.awaitNoPolicies(t)
	namespace := c.namespace(t, nil)
	policies := func() []*v1alpha1.WebhookPolicy {
		var out []*v1alpha1.WebhookPolicy
		for i := range 12 {
			out = append(out, newPolicy(fmt.Sprintf("ordered-%02d", i), namespace, within(int32(3+i%2)), func(p *v1alpha1.WebhookPolicy) {
				if i%3 == 0 {
					p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules,
						rule("", "secrets", "CREATE"), rule("apps", fmt.Sprintf("things%d", i), "DELETE"))
				}
			}))
		}
		return out
	}
	reversed := policies()
	slices.Reverse(reversed)
	var results [][]configuration
	for _, order := range [][]*v1alpha1.WebhookPolicy{policies(), reversed} {
		c.enforce(t, order...)
		results = append(results, normal(c.configurations(t)))
		for _, p := range order {
			c.remove(t, p.Name)
		}
		c.awaitNoPolicies(t)
	}
	if len(results[0]) == 0 {
		t.Fatal("there are no configurations")
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("in the first order (-) and in the second (+):\n%s", diff)
	}
}

// normal are configurations without what no two installations have in common.
func normal(configs []configuration) []configuration {
	out := make([]configuration, len(configs))
	for i := range configs {
		config := configs[i].DeepCopy()
		config.UID, config.ResourceVersion, config.Generation = "", "", 0
		config.CreationTimestamp, config.ManagedFields = metav1.Time{}, nil
		delete(config.Annotations, registration.AnnotationTouched)
		for j := range config.OwnerReferences {
			config.OwnerReferences[j].UID = ""
		}
		for j := range config.Webhooks {
			call := &config.Webhooks[j].ClientConfig
			call.CABundle, call.URL = nil, new(registration.Conceal(*call.URL))
		}
		out[i] = *config
	}
	return out
}
