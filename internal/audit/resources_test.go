package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestResources(t *testing.T) {
	api := Served{
		{Group: "apps", Version: "v1"}: {
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: []string{"list"}},
		},
		{Group: "apps", Version: "v1beta1"}: {
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: []string{"list"}},
		},
		{Version: "v1"}: {
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"list"}},
			{Name: "nodes", Kind: "Node", Verbs: []string{"list"}},
			{Name: "events", Kind: "Event", Namespaced: true, Verbs: []string{"list"}},
		},
		{Group: "metrics.k8s.io", Version: "v1"}: {{Name: "reviews", Kind: "Review", Verbs: []string{"create"}}},
	}
	rule := func(group, resource string, edit ...func(*admissionregistrationv1.NamedRuleWithOperations)) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) {
			r := admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
			}}
			for _, f := range edit {
				f(&r)
			}
			p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{r}
		}
	}
	tests := map[string]struct {
		edit func(*v1alpha1.WebhookPolicy)
		want []string
	}{
		"the highest version": {edit: rule("apps", "deployments"), want: []string{"apps/v1 deployments"}},
		"a lower version": {
			edit: rule("apps", "deployments",
				func(r *admissionregistrationv1.NamedRuleWithOperations) { r.APIVersions = []string{"v1beta1"} }),
			want: []string{"apps/v1beta1 deployments"},
		},
		"everything": {edit: rule("*", "*/*"), want: []string{"apps/v1 deployments", "v1 nodes", "v1 pods"}},
		"a scope": {edit: rule("*", "*", func(r *admissionregistrationv1.NamedRuleWithOperations) {
			r.Scope = new(admissionregistrationv1.ClusterScope)
		}), want: []string{"v1 nodes"}},
		"a subresource":              {edit: rule("", "pods/status")},
		"all subresources, and Pods": {edit: rule("", "pods/*"), want: []string{"v1 pods"}},
		"only creations": {edit: rule("", "pods", func(r *admissionregistrationv1.NamedRuleWithOperations) {
			r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
		}), want: []string{"v1 pods"}},
		"only deletions": {edit: rule("", "pods", func(r *admissionregistrationv1.NamedRuleWithOperations) {
			r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
		}), want: nil},
		"templates": {edit: func(p *v1alpha1.WebhookPolicy) {
			rule("", "pods", func(r *admissionregistrationv1.NamedRuleWithOperations) {
				r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
			})(p)
			p.Spec.PodTemplates = &v1alpha1.PodTemplates{}
		}, want: []string{"apps/v1 deployments", "v1 pods"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			p := &v1alpha1.WebhookPolicy{Spec: v1alpha1.WebhookPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{}}}
			tt.edit(p)
			resources, more := Resources(&p.Spec, api)
			for _, r := range resources {
				got = append(got, r.GroupVersion().String()+" "+r.Resource)
			}
			if more {
				t.Error("there are more resources")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}
