package registration

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// TestVersionSignature compares the signatures of two policies. A rule is written as
// group/resource=version+version.
func TestVersionSignature(t *testing.T) {
	tests := map[string]struct {
		a, b      string
		wantShare bool
	}{
		"one version":                                {a: "/pods=v1", b: "apps/deployments=v1", wantShare: true},
		"two versions, in any order":                 {a: "apps/deployments=v1+v1beta1", b: "apps/scales=v1beta1+v1", wantShare: true},
		"versions of one resource":                   {a: "apps/deployments=v1", b: "apps/deployments=v1beta1"},
		"one and any":                                {a: "apps/deployments=v1", b: "apps/deployments=*"},
		"the same versions by resource":              {a: "/pods=v1 apps/deployments=v2", b: "apps/deployments=v2 /pods=v1", wantShare: true},
		"other versions by resource":                 {a: "/pods=v1 apps/deployments=v2", b: "/pods=v1 apps/deployments=v3"},
		"another resource's version":                 {a: "/pods=v1 apps/deployments=v2", b: "/pods=v1 apps/scales=v2"},
		"overlapping rules in the same order":        {a: "apps/*=v1 apps/deployments=v2", b: "apps/*=v1 apps/deployments=v2", wantShare: true},
		"overlapping rules in another order":         {a: "apps/*=v1 apps/deployments=v2", b: "apps/deployments=v2 apps/*=v1"},
		"rules that overlap in a subresource":        {a: "apps/x/*=v1 apps/*/status=v2", b: "apps/*/status=v2 apps/x/*=v1"},
		"rules that do not overlap":                  {a: "apps/x/a=v1 apps/*/status=v2", b: "apps/*/status=v2 apps/x/a=v1", wantShare: true},
		"rules that overlap in a group":              {a: "*/x=v1 apps/x=v2", b: "apps/x=v2 */x=v1"},
		"resources of one name, other groups":        {a: "batch/x=v1 apps/x=v2", b: "apps/x=v2 batch/x=v1", wantShare: true},
		"events of one group":                        {a: "/events=v1", b: "/events=v1", wantShare: true},
		"events of both groups":                      {a: "/events=v1", b: "events.k8s.io/events=v1"},
		"events, and a wildcard that matches events": {a: "events.k8s.io/events=v1", b: "events.k8s.io/events=v1 /*=v1"},
	}
	signature := func(rules string) string {
		var list []rule
		for r := range strings.FieldsSeq(rules) {
			place, versions, _ := strings.Cut(r, "=")
			group, resource, _ := strings.Cut(place, "/")
			next := everything()
			next.APIGroups, next.Resources, next.APIVersions = []string{group}, []string{resource}, strings.Split(versions, "+")
			list = append(list, next)
		}
		s, _ := versionSignature(plainRules(list, PhaseValidate), guard.AllowedCritical(&v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: list}, AllowCriticalResources: true,
		}))
		return s
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := signature(tc.a), signature(tc.b)
			if (a == b) != tc.wantShare {
				t.Errorf("%q and %q: share %t, want %t", a, b, a == b, tc.wantShare)
			}
		})
	}
}
