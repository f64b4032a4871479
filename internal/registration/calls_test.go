package registration

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
