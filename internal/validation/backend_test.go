package validation

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

func TestCheckBackend(t *testing.T) {
	conditions := func(n int) []admissionregistrationv1.MatchCondition {
		out := make([]admissionregistrationv1.MatchCondition, n)
		for i := range out {
			out[i] = admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: "true"}
		}
		return out
	}
	const noURL = "spec.backend.url: Forbidden: write url as https://host[:port]/path: the API server calls nothing else"
	tests := map[string]struct {
		edit func(*v1alpha1.WebhookPolicySpec)
		want []string
	}{
		"63 conditions and the guard": {edit: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions = conditions(63) }},
		"64 conditions and the guard": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions = conditions(64) },
			want: []string{"spec.matchConditions: Too many: 64: must have at most 63 items"},
		},
		"63 conditions, the guard and breakGlass": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConditions, s.BreakGlass = conditions(63), true },
			want: []string{"spec.matchConditions: Too many: 63: must have at most 62 items"},
		},
		"the name of the condition for breakGlass": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "may-not-break-glass", Expression: "true"}}
			},
			want: []string{
				`spec.matchConditions[0].name: Invalid value: "may-not-break-glass": choose another name: Ostiary has a condition of this name`,
			},
		},
		"64 conditions without a guard": {edit: func(s *v1alpha1.WebhookPolicySpec) {
			s.MatchConditions = conditions(64)
			s.MatchConstraints.ResourceRules[0].APIGroups = []string{"apps"}
		}},
		"names of Ostiary's own conditions": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConditions = []admissionregistrationv1.MatchCondition{
					{Name: guard.ResourcesCondition, Expression: "true"}, {Name: guard.DelegatedCondition, Expression: "true"},
					{Name: guard.NamespacesCondition, Expression: "true"},
				}
			},
			want: []string{
				`spec.matchConditions[0].name: Invalid value: "not-critical-resources": choose another name: Ostiary has a condition of this name`,
				`spec.matchConditions[1].name: Invalid value: "matches-policy": choose another name: Ostiary has a condition of this name`,
				`spec.matchConditions[2].name: Invalid value: "not-exempt-namespaces": choose another name: Ostiary has a condition of this name`,
			},
		},
		"a guarded resource": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.ResourceRules[0].APIGroups = []string{v1alpha1.GroupName}
			},
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiGroups[0]: Forbidden: remove "admission.ostiary.dev": policies never ` +
					`apply to it, so that a broken policy cannot lock the cluster`,
			},
		},
		"validations": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.Validations = []v1alpha1.Validation{{Expression: "true"}}
			},
			want: []string{"spec.validations: Forbidden: remove validations, or backend: a policy has one or the other"},
		},
		"resource names": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.ResourceRules[0].ResourceNames = []string{"a"}
			},
			want: []string{
				"spec.matchConstraints.resourceRules[0].resourceNames: Forbidden: remove resourceNames: webhooks have none; use a " +
					"matchCondition on request.name",
			},
		},
		"service and url": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.URL = "https://a" },
			want: []string{`spec.backend: Invalid value: "": set either service or url`},
		},
		"url with http": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "http://a" },
			want: []string{noURL},
		},
		"invalid url with a password": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "https://me:p%zz@a" },
			want: []string{noURL},
		},
		"every problem of a url": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "https://me@:0?a#b" },
			want: []string{
				"spec.backend.url: Forbidden: add a host to url",
				"spec.backend.url: Forbidden: remove user and password from url: the API server sends none, and readers of the policy would see them",
				"spec.backend.url: Forbidden: remove the query from url: the API server rejects it",
				"spec.backend.url: Forbidden: remove the fragment from url: the API server rejects it",
				"spec.backend.url: Forbidden: choose a port between 1 and 65535 for url",
			},
		},
		"every field that a backend excludes": {
			edit: func(s *v1alpha1.WebhookPolicySpec) {
				mutatingSpec(s)
				s.Bindings = []v1alpha1.Binding{{Name: "b"}}
				s.Plugin = &v1alpha1.Plugin{Name: v1alpha1.PluginAlwaysDeny}
			},
			want: []string{
				"spec.mutations: Forbidden: remove mutations, or backend: a policy has one or the other",
				"spec.bindings: Forbidden: remove bindings: only the backend decides; select its requests in matchConstraints",
				"spec.plugin: Forbidden: remove plugin, or backend: a policy has one or the other",
				"spec.mutations: Forbidden: remove mutations, or plugin: a policy has one or the other",
			},
		},
		"url with a user": {
			edit: func(s *v1alpha1.WebhookPolicySpec) { s.Backend.Service, s.Backend.URL = nil, "https://me:secret@a" },
			want: []string{
				"spec.backend.url: Forbidden: remove user and password from url: the API server sends none, and readers of the policy would see them",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := aboutPods()
			p.Spec.Validations, p.Spec.Backend = nil, aBackend()
			p.Spec.MatchConstraints.ResourceRules = []rule{everything()}
			tt.edit(&p.Spec)
			var got []string
			for _, err := range Check(p) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}
