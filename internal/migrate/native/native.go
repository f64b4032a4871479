// Package native converts ValidatingAdmissionPolicies and MutatingAdmissionPolicies with
// their bindings to WebhookPolicies, and back.
package native

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// The kinds of native policies.
const (
	kindValidating        = "ValidatingAdmissionPolicy"
	kindValidatingBinding = "ValidatingAdmissionPolicyBinding"
	kindMutating          = "MutatingAdmissionPolicy"
	kindMutatingBinding   = "MutatingAdmissionPolicyBinding"
)

// Source returns the conversion of native policies.
func Source() conversion.Source {
	s := conversion.Source{
		Title:   "ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their bindings",
		Convert: convertPolicies,
	}
	for _, kind := range []string{kindValidating, kindValidatingBinding, kindMutating, kindMutatingBinding} {
		s.Kinds = append(s.Kinds, schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: kind})
	}
	return s
}

// nativeBinding is a native binding. Its actions are those of a validating one.
type nativeBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec `json:"spec"`

	source *load.Object
	used   bool
}

func convertPolicies(in *conversion.Input) ([]conversion.Conversion, error) {
	var out, unbound []conversion.Conversion
	var bindings []*nativeBinding
	for i := range in.Objects {
		o := &in.Objects[i]
		if o.Kind != kindValidatingBinding && o.Kind != kindMutatingBinding {
			continue
		}
		c := conversion.Conversion{Source: *o}
		b := &nativeBinding{source: o}
		if c.Decode(b) {
			bindings = append(bindings, b)
		} else {
			unbound = append(unbound, c)
		}
	}
	byPolicy := map[string][]*nativeBinding{}
	for _, b := range bindings {
		key := b.Kind + " " + b.Spec.PolicyName
		byPolicy[key] = append(byPolicy[key], b)
	}
	for i := range in.Objects {
		o := &in.Objects[i]
		if o.Kind != kindValidating && o.Kind != kindMutating {
			continue
		}
		c := conversion.Conversion{Source: *o}
		if err := convertPolicy(&c, in, byPolicy[o.Kind+"Binding "+o.Metadata.Name]); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	for _, b := range bindings {
		if !b.used {
			c := conversion.Conversion{Source: *b.source}
			c.LeaveOut(
				"spec.policyName",
				fmt.Sprintf("the input has no %s %q", strings.TrimSuffix(b.Kind, "Binding"), b.Spec.PolicyName),
				"add its file with -f",
			)
			unbound = append(unbound, c)
		}
	}
	return append(out, unbound...), nil
}

// convertPolicy converts a policy with its bindings.
func convertPolicy(c *conversion.Conversion, in *conversion.Input, bound []*nativeBinding) error {
	o := policyOf(c)
	if o == nil {
		return nil
	}
	p := o.Policy()
	for _, b := range bound {
		b.used = true
	}
	if owner := conversion.Owner(&c.Source, in); owner != "" {
		c.Add(conversion.Row{Outcome: conversion.Converted, Detail: owner + " writes it and is converted instead"})
		return nil
	}
	bindOriginal(c.Original, bound)
	notes := addBindings(o, bound)
	if err := notes.Write(o); err != nil {
		return err
	}
	if conversion.NamesCriticalResources(p) {
		p.Spec.AllowCriticalResources = true
	}
	switch {
	case len(bound) > 0:
		c.Outputs = append(c.Outputs, o)
		c.Add(conversion.Row{Outcome: conversion.Converted, Output: o})
	case p.Spec.Mutates():
		c.LeaveOut(
			"",
			"no binding of the input names the policy, so it has no effect",
			"add the file of its binding with -f",
		)
	default:
		p.Spec.Bindings = []v1alpha1.Binding{
			{
				Name:              conversion.BindingName,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
			},
		}
		c.Outputs = append(c.Outputs, o)
		c.Add(conversion.Row{Outcome: conversion.Changed, Output: o,
			Detail: "no binding of the input names the policy, so it has no effect: the result has a binding with " +
				"the action Audit"})
	}
	return nil
}

// policyOf returns the policy without bindings, nil if it is left out.
func policyOf(c *conversion.Conversion) *conversion.Output {
	if c.Source.Kind == kindMutating {
		m := &admissionregistrationv1.MutatingAdmissionPolicy{}
		if !c.Decode(m) {
			return nil
		}
		c.Original = &conversion.Original{Mutating: m}
		o := conversion.NewPolicy(&c.Source, m.ObjectMeta)
		o.Policy().Spec = v1alpha1.WebhookPolicySpec{
			ParamKind:        m.Spec.ParamKind,
			MatchConstraints: m.Spec.MatchConstraints,
			MatchConditions:  m.Spec.MatchConditions,
			Variables:        m.Spec.Variables, Mutations: m.Spec.Mutations, FailurePolicy: m.Spec.FailurePolicy,
		}
		if m.Spec.ReinvocationPolicy != "" {
			o.Policy().Spec.ReinvocationPolicy = &m.Spec.ReinvocationPolicy
		}
		return o
	}
	v := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if !c.Decode(v) {
		return nil
	}
	c.Original = &conversion.Original{Validating: v}
	o := conversion.NewPolicy(&c.Source, v.ObjectMeta)
	o.Policy().Spec = v1alpha1.WebhookPolicySpec{
		ParamKind: v.Spec.ParamKind, MatchConstraints: v.Spec.MatchConstraints, MatchConditions: v.Spec.MatchConditions,
		Variables:        v.Spec.Variables,
		Validations:      v1alpha1.ValidationsOf(v.Spec.Validations),
		AuditAnnotations: v.Spec.AuditAnnotations,
		FailurePolicy:    v.Spec.FailurePolicy,
	}
	return o
}

// bindOriginal adds bindings to the native policy itself.
func bindOriginal(o *conversion.Original, bindings []*nativeBinding) {
	if len(bindings) == 0 {
		o.Unlike = "no binding of the input names the policy, so it has no effect"
	}
	for _, b := range bindings {
		if s := b.Spec; o.Mutating != nil {
			o.MutatingBindings = append(o.MutatingBindings, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
				ObjectMeta: b.ObjectMeta,
				Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
					PolicyName:     s.PolicyName,
					ParamRef:       s.ParamRef,
					MatchResources: s.MatchResources,
				},
			})
		} else {
			o.ValidatingBindings = append(
				o.ValidatingBindings,
				&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: b.ObjectMeta, Spec: s},
			)
		}
	}
}

// addBindings adds bindings to a policy, and returns what they have besides.
func addBindings(o *conversion.Output, bindings []*nativeBinding) conversion.NativeNotes {
	notes := conversion.NativeNotes{Bindings: map[string]conversion.NativeBinding{}}
	for i, b := range bindings {
		name := conversion.Label(b.Name)
		metadata := conversion.Metadata(b.ObjectMeta)
		note := conversion.NativeBinding{Labels: metadata.Labels, Annotations: metadata.Annotations}
		if name != b.Name {
			note.Name = b.Name
		}
		if !note.IsEmpty() {
			notes.Bindings[name] = note
		}
		o.Policy().Spec.Bindings = append(o.Policy().Spec.Bindings, v1alpha1.Binding{
			Name:              name,
			ParamRef:          b.Spec.ParamRef,
			MatchResources:    b.Spec.MatchResources,
			ValidationActions: b.Spec.ValidationActions,
		})
		for _, field := range []string{"paramRef", "matchResources", "validationActions"} {
			o.Origins = append(o.Origins, conversion.Origin{
				Field:       fmt.Sprintf("spec.bindings[%d].%s", i, field),
				Source:      b.source,
				SourceField: "spec." + field,
			})
		}
	}
	return notes
}
