package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestCheckTemplates(t *testing.T) {
	const at = "spec.podTemplates"
	kinds := func(kinds ...v1alpha1.PodTemplateKind) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { s.PodTemplates = &v1alpha1.PodTemplates{Kinds: kinds} }
	}
	with := func(change func(*v1alpha1.WebhookPolicySpec)) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { kinds()(s); change(s) }
	}
	onPods := func(change func(*rule)) func(*v1alpha1.WebhookPolicySpec) {
		return with(func(s *v1alpha1.WebhookPolicySpec) { change(&s.MatchConstraints.ResourceRules[0]) })
	}
	const noRule = at + `: Forbidden: remove it, or add a rule to matchConstraints.resourceRules that matches CREATE or UPDATE of pods, without resourceNames: it is for policies about Pods`
	tests := map[string]struct {
		change func(*v1alpha1.WebhookPolicySpec)
		want   []string
	}{
		"the default kinds": {change: kinds()},
		"default kinds, named": {
			change: kinds(v1alpha1.PodTemplateKind{Resource: "deployments"},
				v1alpha1.PodTemplateKind{Group: "batch", Resource: "jobs"}, v1alpha1.PodTemplateKind{
					Group:    "batch",
					Version:  "v1",
					Resource: "cronjobs",
				}),
		},
		"another kind": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "argoproj.io",
				Version:      "v1alpha1",
				Resource:     "rollouts",
				TemplatePath: "spec.template",
			}),
		},
		"jobs of another group": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "batch.volcano.sh",
				Version:      "v1alpha1",
				Resource:     "jobs",
				TemplatePath: "spec.template",
			}),
		},
		"wildcards": {change: onPods(func(r *rule) { *r = everything() })},
		"UPDATE":    {change: onPods(func(r *rule) { r.Operations = []admissionregistrationv1.OperationType{"UPDATE"} })},
		"CREATE is excluded, UPDATE is not": {change: with(func(s *v1alpha1.WebhookPolicySpec) {
			s.MatchConstraints.ResourceRules[0] = everything()
			s.MatchConstraints.ExcludeResourceRules = []rule{everything()}
			s.MatchConstraints.ExcludeResourceRules[0].Operations = []admissionregistrationv1.OperationType{"CREATE"}
		})},
		"DELETE": {
			change: onPods(func(r *rule) { r.Operations = []admissionregistrationv1.OperationType{"DELETE"} }),
			want:   []string{noRule},
		},
		"another resource": {
			change: onPods(func(r *rule) { r.Resources = []string{"configmaps", "pods/exec"} }),
			want:   []string{noRule},
		},
		"another group": {change: onPods(func(r *rule) { r.APIGroups = []string{"apps"} }), want: []string{noRule}},
		"names":         {change: onPods(func(r *rule) { r.ResourceNames = []string{"web"} }), want: []string{noRule}},
		"cluster scope": {
			change: onPods(func(r *rule) { r.Scope = new(admissionregistrationv1.ClusterScope) }),
			want:   []string{noRule},
		},
		"Pods are excluded": {
			change: with(func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.ExcludeResourceRules = []rule{everything()} }),
			want:   []string{noRule},
		},
		"mutations": {change: with(mutatingSpec)},
		"a kind without a path": {
			change: kinds(v1alpha1.PodTemplateKind{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}),
			want: []string{
				at + `.kinds[0].templatePath: Required value: set templatePath, such as spec.template: only the default kinds have one without it`,
			},
		},
		"a kind without a version": {
			change: kinds(v1alpha1.PodTemplateKind{Group: "argoproj.io", Resource: "rollouts", TemplatePath: "spec.template"}),
			want:   []string{at + `.kinds[0].version: Required value: set version: templatePath is the path in that version`},
		},
		"another path of a default": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "apps",
				Version:      "v1",
				Resource:     "deployments",
				TemplatePath: "spec.other",
			}),
			want: []string{
				at + `.kinds[0]: Invalid value: "deployments": remove version and templatePath: Ostiary knows them for this resource`,
			},
		},
		"two templates": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "kubeflow.org",
				Version:      "v1",
				Resource:     "pytorchjobs",
				TemplatePath: "spec.pytorchReplicaSpecs.Master.template",
			}, v1alpha1.PodTemplateKind{
				Group:        "kubeflow.org",
				Version:      "v1",
				Resource:     "pytorchjobs",
				TemplatePath: "spec.pytorchReplicaSpecs.Worker.template",
			}),
		},
		"a default kind, twice": {
			change: kinds(v1alpha1.PodTemplateKind{Resource: "jobs"},
				v1alpha1.PodTemplateKind{Group: "batch", Resource: "jobs"}),
			want: []string{at + `.kinds[1]: Duplicate value: "jobs"`},
		},
		"templates of two versions": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "kubeflow.org",
				Version:      "v1",
				Resource:     "jobs",
				TemplatePath: "spec.a",
			}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v2", Resource: "jobs", TemplatePath: "spec.b"}),
			want: []string{
				at + `.kinds[1].version: Invalid value: "v2": write "v1", the version of the other templates of jobs: a request has one version`,
			},
		},
		"a template in another": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "kubeflow.org",
				Version:      "v1",
				Resource:     "jobs",
				TemplatePath: "spec.a.spec.b",
			}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.a"}),
			want: []string{
				at + `.kinds[1].templatePath: Invalid value: "spec.a": name one of it and spec.a.spec.b: one is a part of the other`,
			},
		},
		"templates with one prefix": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "kubeflow.org",
				Version:      "v1",
				Resource:     "jobs",
				TemplatePath: "spec.a",
			}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.ab"}),
		},
		"every group": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "*",
				Version:      "v1",
				Resource:     "rollouts",
				TemplatePath: "spec.template",
			}),
			want: []string{at + `.kinds[0].group: Invalid value: "*": name the API group`},
		},
		"pods": {
			change: kinds(v1alpha1.PodTemplateKind{Version: "v1", Resource: "pods", TemplatePath: "spec"}),
			want: []string{
				at + `.kinds[0].resource: Invalid value: "pods": remove it: the policy is evaluated on Pods themselves`,
			},
		},
		"leases": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "coordination.k8s.io",
				Version:      "v1",
				Resource:     "leases",
				TemplatePath: "spec",
			}),
			want: []string{
				at + `.kinds[0]: Forbidden: remove it: policies do not apply to this resource, so that a broken policy cannot lock the cluster`,
			},
		},
		"policies": {
			change: kinds(v1alpha1.PodTemplateKind{
				Group:        "admission.ostiary.dev",
				Version:      "v1alpha1",
				Resource:     "webhookpolicies",
				TemplatePath: "spec",
			}),
			want: []string{
				at + `.kinds[0]: Forbidden: remove it: policies do not apply to this resource, so that a broken policy cannot lock the cluster`,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := aboutPods()
			tc.change(&policy.Spec)
			var got []string
			for _, err := range Check(policy) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
