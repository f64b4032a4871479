package registration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestCallsOf(t *testing.T) {
	tests := map[string]struct {
		policies []*v1alpha1.WebhookPolicy
		want     []Calls
	}{
		"no policy": {},
		"one group": {
			policies: allOf(inVersions("a", "/pods=v1"), inVersions("b", "/pods=v1 apps/deployments=v1")),
			want:     []Calls{{"deployments.apps", 0, 1}, {"pods", 0, 1}},
		},
		"other versions in another group": {
			policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v1")),
			want:     []Calls{{"pods", 0, 1}},
		},
		"other settings": {
			policies: allOf(
				inVersions("a", "/pods=*", doingBoth),
				inVersions("b", "/pods=v1 apps/deployments/scale=v1", doingBoth, timeout(9)),
				inVersions("c", "/pods=v1", timeout(7)),
			),
			want: []Calls{{"pods", 2, 3}, {"deployments.apps/scale", 1, 1}},
		},
		"wildcards": {
			policies: allOf(inVersions("a", "*/*/*=*"), inVersions("b", "/pods=v1", timeout(9))),
			want:     []Calls{{"pods", 0, 2}},
		},
		"other operations": {
			policies: allOf(
				inVersions("a", "/pods=v1", onOperations("CREATE")), inVersions("b", "/pods=v1", onOperations("DELETE"), timeout(9)),
			),
			want: []Calls{{"pods", 0, 1}},
		},
		"no v1": {
			policies: allOf(
				inVersions("a", "example.com/things=v2"), inVersions("b", "example.com/things=v1beta1", exact),
			),
			want: []Calls{{"things.example.com", 0, 2}},
		},
		"Exact for another version": {
			policies: allOf(inVersions("a", "example.com/things=v1"), inVersions("b", "example.com/things=v1beta1", exact)),
			want:     []Calls{{"things.example.com", 0, 1}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			configs := observe(planOf(tc.policies...))
			configs = append(configs, Own{Endpoint: testService}.Review())
			if diff := cmp.Diff(tc.want, CallsOf(configs)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeveralCallsOf(t *testing.T) {
	fails := func(p *v1alpha1.WebhookPolicy) { p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore) }
	tests := map[string]struct {
		policies []*v1alpha1.WebhookPolicy
		want     map[string][]string // differences, by phase and resource
	}{
		"one call": {policies: allOf(inVersions("a", "/pods=*"), inVersions("b", "/pods=v1")), want: map[string][]string{}},
		"a timeout": {
			policies: allOf(inVersions("a", "/pods=v1", doingBoth), inVersions("b", "/pods=v1 apps/deployments=v1", doingBoth, timeout(9))),
			want:     map[string][]string{"mutate pods": {"timeoutSeconds"}, "validate pods": {"timeoutSeconds"}},
		},
		"two settings": {
			policies: allOf(inVersions("a", "/pods=v1"), inVersions("b", "/pods=v1", fails, timeout(9)), inVersions("c", "/pods=v1", timeout(9))),
			want:     map[string][]string{"validate pods": {"failurePolicy", "timeoutSeconds"}},
		},
		"versions": {
			policies: allOf(inVersions("a", "example.com/things=v2"), inVersions("b", "example.com/things=v1beta1")),
			want:     map[string][]string{"validate things.example.com": nil},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			configs := observe(planOf(tc.policies...))
			got, calls := map[string][]string{}, map[string]int{}
			for _, s := range SeveralCallsOf(configs) {
				got[string(s.Phase)+" "+s.Resource] = s.Differences
				calls[string(s.Phase)+" "+s.Resource] = len(s.Configurations)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			for _, c := range CallsOf(configs) {
				several := map[string]int{"mutate " + c.Resource: c.Mutating, "validate " + c.Resource: c.Validating}
				for key, n := range several {
					if n > 1 && calls[key] != n {
						t.Errorf("%s: %d configurations, want %d", key, calls[key], n)
					}
				}
			}
		})
	}
}
