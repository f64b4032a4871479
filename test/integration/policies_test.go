package integration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// onlyGood is false for the ConfigMaps that a probe calls bad.
const onlyGood = `!has(object.data) || !("verdict" in object.data) || object.data.verdict != "bad"`

// newPolicy makes a policy that refuses bad ConfigMaps in a namespace.
func newPolicy(name, namespace string, edits ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	p := &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
					rule("", "configmaps", admissionregistrationv1.Create, admissionregistrationv1.Update),
				},
			},
			Validations: []v1alpha1.Validation{{Expression: onlyGood, Message: "bad is not good"}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func rule(group, resource string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}
}

func failing(policy admissionregistrationv1.FailurePolicyType) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.FailurePolicy = &policy }
}

func within(seconds int32) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.TimeoutSeconds = &seconds }
}

func saying(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = []v1alpha1.Validation{{Expression: expression}}
	}
}

func acting(actions ...admissionregistrationv1.ValidationAction) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Bindings = []v1alpha1.Binding{{Name: "all", ValidationActions: actions}}
	}
}

// matchesEverything matches whatever can be matched, and fails closed.
func matchesEverything(name string, edits ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	return newPolicy(name, "", append([]func(*v1alpha1.WebhookPolicy){saying("false"), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule("*", "*/*", admissionregistrationv1.OperationAll)},
		}
	}}, edits...)...)
}

// failingToMutate has a policy mutate instead: what it is called for, it refuses.
func failingToMutate(p *v1alpha1.WebhookPolicy) {
	p.Spec.Validations = nil
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: object.never}]`},
	}}
}

// askingForAll has a policy ask for every critical resource that it may ask for.
func askingForAll(p *v1alpha1.WebhookPolicy) {
	p.Spec.AllowCriticalResources = true
	for group, resources := range map[string][]string{
		"": {"events"}, "events.k8s.io": {"events"}, "coordination.k8s.io": {"leases"},
		"authentication.k8s.io": {"tokenreviews", "selfsubjectreviews"},
		"authorization.k8s.io":  {"subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"},
	} {
		for _, resource := range resources {
			p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules,
				rule(group, resource, admissionregistrationv1.OperationAll))
		}
	}
}
