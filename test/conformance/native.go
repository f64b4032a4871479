package conformance

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// nativeObjects are the native policies and bindings that a WebhookPolicy
// stands for.
func nativeObjects(p *v1alpha1.WebhookPolicy) ([]*unstructured.Unstructured, error) {
	var objects []runtime.Object
	if len(p.Spec.Mutations) > 0 {
		objects = append(objects, mutatingPolicy(p))
	}
	if p.Spec.Validates() || len(p.Spec.Mutations) == 0 {
		objects = append(objects, validatingPolicy(p))
	}
	for _, b := range nativeBindings(p) {
		if match, some := mutable(b.MatchResources); some && len(p.Spec.Mutations) > 0 {
			objects = append(objects, mutatingBinding(p, b, match))
		}
		if p.Spec.Validates() || len(p.Spec.Mutations) == 0 {
			objects = append(objects, validatingBinding(p, b))
		}
	}
	out := make([]*unstructured.Unstructured, len(objects))
	for i, o := range objects {
		var err error
		if out[i], err = toUnstructured(o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func toUnstructured(o runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("converting a %T: %w", o, err)
	}
	unstructured.RemoveNestedField(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

func validatingPolicy(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta: typeOf(kindValidatingPolicy), ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: p.Spec.ParamKind, MatchConstraints: p.Spec.MatchConstraints, MatchConditions: p.Spec.MatchConditions,
			Variables: p.Spec.Variables, Validations: p.Spec.NativeValidations(), AuditAnnotations: p.Spec.AuditAnnotations,
			FailurePolicy: p.Spec.FailurePolicy,
		},
	}
}

func mutatingPolicy(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.MutatingAdmissionPolicy {
	spec := p.Spec.DeepCopy()
	spec.MatchConstraints, _ = mutable(spec.MatchConstraints)
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: typeOf(kindMutatingPolicy), ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: spec.ParamKind, MatchConstraints: spec.MatchConstraints,
			MatchConditions: append(spec.MatchConditions, notExcepted(p)...),
			Variables:       spec.Variables, Mutations: spec.Mutations, FailurePolicy: spec.FailurePolicy,
			ReinvocationPolicy: spec.EffectiveReinvocationPolicy(),
		},
	}
}

// withoutDelete leaves out what no MutatingAdmissionPolicy may name, and says
// whether any of several rules is left.
func withoutDelete(in []admissionregistrationv1.NamedRuleWithOperations) (out []admissionregistrationv1.NamedRuleWithOperations, some bool) {
	for _, rule := range in {
		rule.Operations = slices.DeleteFunc(slices.Clone(rule.Operations), func(o admissionregistrationv1.OperationType) bool {
			return o == admissionregistrationv1.Delete
		})
		if len(rule.Operations) > 0 {
			out = append(out, rule)
		}
	}
	return out, len(in) == 0 || len(out) > 0
}

// mutable is what a MutatingAdmissionPolicy or its binding may match of all
// that a policy for both phases matches; false means nothing.
func mutable(in *admissionregistrationv1.MatchResources) (*admissionregistrationv1.MatchResources, bool) {
	if in == nil {
		return nil, true
	}
	out := in.DeepCopy()
	var some bool
	out.ResourceRules, some = withoutDelete(out.ResourceRules)
	out.ExcludeResourceRules, _ = withoutDelete(out.ExcludeResourceRules)
	return out, some
}

// defaultBinding is the name of the native binding of a policy that has none.
const defaultBinding = "default"

func nativeBindings(p *v1alpha1.WebhookPolicy) []v1alpha1.Binding {
	out := p.Spec.EffectiveBindings()
	for i := range out {
		if out[i].Name == "" {
			out[i].Name = p.Name + "-" + defaultBinding
		}
	}
	return out
}

func validatingBinding(p *v1alpha1.WebhookPolicy, b v1alpha1.Binding) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: typeOf(kindValidatingBinding), ObjectMeta: metav1.ObjectMeta{Name: b.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: p.Name, ParamRef: b.ParamRef, MatchResources: b.MatchResources, ValidationActions: b.ValidationActions,
		},
	}
}

func mutatingBinding(p *v1alpha1.WebhookPolicy, b v1alpha1.Binding,
	match *admissionregistrationv1.MatchResources) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta: typeOf(kindMutatingBinding), ObjectMeta: metav1.ObjectMeta{Name: b.Name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: p.Name, ParamRef: b.ParamRef, MatchResources: match,
		},
	}
}
