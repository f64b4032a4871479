package celpolicies

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Source returns the conversion of the policies.
func Source() conversion.Source {
	return conversion.Source{
		Title:        "Kyverno's ValidatingPolicies, MutatingPolicies and PolicyExceptions in CEL (group " + group + ")",
		Kinds:        []schema.GroupKind{{Group: group}},
		WritesNative: true,
		Convert:      convertPolicies,
	}
}

func convertPolicies(in *conversion.Input) ([]conversion.Conversion, error) {
	exceptions, out := exceptionsOf(in)
	for i := range in.Objects {
		o := &in.Objects[i]
		c := conversion.Conversion{Source: *o}
		switch o.Kind {
		case kindValidating, kindNamespacedValidating:
			convertValidating(&c, exceptions)
		case kindMutating, kindNamespacedMutating:
			convertMutating(&c, exceptions)
		case kindException:
			continue
		default:
			why, alternative := unsupportedKind(o.Kind)
			c.LeaveOut("", why, alternative)
		}
		out = append(out, c)
	}
	for _, e := range exceptions {
		out = append(out, e.conversion())
	}
	return out, nil
}

// unsupportedKind says why a kind is left out.
func unsupportedKind(kind string) (why, alternative string) {
	switch strings.TrimPrefix(kind, "Namespaced") {
	case "ImageValidatingPolicy", "ImageVerificationPolicy":
		return "Ostiary verifies no signatures of images", "use the plugin ImagePolicyWebhook with a verifier"
	case "GeneratingPolicy":
		return "Ostiary creates no objects", "use a controller for these objects"
	case "DeletingPolicy":
		return "Ostiary deletes no objects", "use a CronJob or a TTL controller"
	}
	return "this command does not know the kind", "write a WebhookPolicy"
}

func convertValidating(c *conversion.Conversion, exceptions []*appliedException) {
	p := &validatingPolicy{}
	if !c.Decode(p) {
		return
	}
	b := newBuilder(c, p.ObjectMeta, &p.Spec.commonSpec, exceptions)
	s := &b.policy.Spec
	s.Validations = v1alpha1.ValidationsOf(p.Spec.Validations)
	s.AuditAnnotations = slices.Clone(p.Spec.AuditAnnotations)
	s.Bindings[0].ValidationActions = p.Spec.ValidationActions
	if len(s.Bindings[0].ValidationActions) == 0 {
		s.Bindings[0].ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	b.output.Origins = append(b.output.Origins, conversion.Origin{
		Field:       "spec.bindings[0].validationActions",
		Source:      &c.Source,
		SourceField: "spec.validationActions",
	})
	b.original(conversion.NewOriginal(p.Name, admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: p.Spec.MatchConstraints, MatchConditions: p.Spec.MatchConditions, Variables: p.Spec.Variables,
		Validations: p.Spec.Validations, AuditAnnotations: p.Spec.AuditAnnotations, FailurePolicy: p.Spec.FailurePolicy,
	}, s.Bindings[0].ValidationActions))
	if p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admissionregistrationv1.Ignore {
		b.change("spec.failurePolicy", conversion.NoteIgnoredErrors)
	}
	if len(s.AuditAnnotations) > 0 {
		b.change("spec.auditAnnotations", "the values are in the audit log of the API server instead of policy reports")
	}
	b.finish()
}

func convertMutating(c *conversion.Conversion, exceptions []*appliedException) {
	p := &mutatingPolicy{}
	if !c.Decode(p) {
		return
	}
	b := newBuilder(c, p.ObjectMeta, &p.Spec.commonSpec, exceptions)
	if p.Spec.TargetMatchConstraints != nil || p.Spec.Evaluation != nil &&
		p.Spec.Evaluation.MutateExisting.isOn(false) {
		c.LeaveOut(
			"spec.evaluation.mutateExisting",
			"Ostiary changes only the object of a request, no existing objects",
			"change them once with kubectl",
		)
		return
	}
	m := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	m.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: p.Spec.MatchConstraints, MatchConditions: p.Spec.MatchConditions, Variables: p.Spec.Variables,
		Mutations: p.Spec.Mutations, FailurePolicy: p.Spec.FailurePolicy,
	}
	all := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: conversion.BindingName},
	}
	b.original(&conversion.Original{
		Mutating:         m.DeepCopy(),
		MutatingBindings: []*admissionregistrationv1.MutatingAdmissionPolicyBinding{all},
	})
	b.policy.Spec.Mutations = p.Spec.Mutations
	b.withoutDelete()
	if p.Spec.ReinvocationPolicy != "" {
		b.policy.Spec.ReinvocationPolicy = &p.Spec.ReinvocationPolicy
	}
	b.finish()
}

// builder makes the policy for one source.
type builder struct {
	*conversion.Conversion
	common *commonSpec
	output *conversion.Output
	policy *v1alpha1.WebhookPolicy
	// changes are the differences, by field.
	changes    []conversion.Row
	exceptions []*appliedException
	failed     bool
}

func newBuilder(
	c *conversion.Conversion,
	metadata metav1.ObjectMeta,
	from *commonSpec,
	exceptions []*appliedException,
) *builder {
	o := conversion.NewPolicy(&c.Source, metadata)
	b := &builder{Conversion: c, common: from, output: o, policy: o.Policy()}
	for _, e := range exceptions {
		if e.refersTo(&c.Source) {
			b.exceptions = append(b.exceptions, e)
		}
	}
	b.policy.Spec = v1alpha1.WebhookPolicySpec{
		MatchConstraints: from.MatchConstraints,
		Variables:        slices.Clip(from.Variables),
		FailurePolicy:    from.FailurePolicy,
		Bindings:         []v1alpha1.Binding{{Name: conversion.BindingName}},
	}
	conditions, renamed := conversion.ConditionNames(from.MatchConditions)
	b.policy.Spec.MatchConditions = conditions
	for _, note := range renamed {
		b.change("spec.matchConditions", note)
	}
	if w := from.WebhookConfiguration; w != nil {
		b.policy.Spec.TimeoutSeconds = w.TimeoutSeconds
	}
	return b
}

// change notes a difference of a field.
func (b *builder) change(field, how string) {
	b.changes = append(
		b.changes,
		conversion.Row{Rule: field, Outcome: conversion.Changed, Detail: how, Output: b.output},
	)
}

// leaveOut leaves the policy out.
func (b *builder) leaveOut(field, why, alternative string) {
	b.failed = true
	b.LeaveOut(field, why, alternative)
}

// finish adds the policy to the conversion if all of it can be expressed.
func (b *builder) finish() {
	b.evaluation()
	b.namespace()
	b.except()
	b.expressions()
	b.guards()
	b.messages()
	if b.failed {
		return
	}
	b.absent()
	b.autogen()
	if conversion.NamesCriticalResources(b.policy) {
		b.policy.Spec.AllowCriticalResources = true
	}
	b.Outputs = append(b.Outputs, b.output)
	for _, e := range b.exceptions {
		e.to = append(e.to, b.output)
	}
	if len(b.changes) == 0 {
		b.Add(conversion.Row{Outcome: conversion.Converted, Output: b.output})
	}
	b.Rows = append(b.Rows, b.changes...)
}

// evaluation converts when the policy is evaluated.
func (b *builder) evaluation() {
	e := b.common.Evaluation
	switch {
	case e == nil:
	case e.Mode != "" && e.Mode != "Kubernetes":
		b.leaveOut(
			"spec.evaluation.mode",
			fmt.Sprintf("the mode %q is not for Kubernetes requests", e.Mode),
			"keep the policy in the tool that evaluates it",
		)
	case !e.Admission.isOn(true):
		b.leaveOut("spec.evaluation.admission", conversion.OnlyExisting, conversion.InsteadOfOnlyExisting)
	case e.Background != nil:
		b.output.SetBackground("spec.evaluation.background", e.Background.Enabled)
	}
	if b.common.MatchConstraints == nil || len(b.common.MatchConstraints.ResourceRules) == 0 {
		b.leaveOut(
			"spec.matchConstraints",
			"the policy has no resourceRules, so it matches no request",
			"add them to the source",
		)
	}
}

// namespace restricts a namespaced policy to its namespace.
func (b *builder) namespace() {
	if !strings.HasPrefix(b.Source.Kind, "Namespaced") || b.failed {
		return
	}
	namespace := b.Source.Metadata.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	b.policy.Name = namespace + "-" + b.policy.Name
	b.policy.Spec.Bindings[0].MatchResources = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}
	match := b.policy.Spec.MatchConstraints.DeepCopy()
	match.ResourceRules = slices.DeleteFunc(match.ResourceRules, func(
		r admissionregistrationv1.NamedRuleWithOperations,
	) bool {
		return r.Scope != nil && *r.Scope == admissionregistrationv1.ClusterScope
	})
	for i := range match.ResourceRules {
		match.ResourceRules[i].Scope = new(admissionregistrationv1.NamespacedScope)
	}
	b.policy.Spec.MatchConstraints = match
}

// messages writes messages on one line, as API servers need them.
func (b *builder) messages() {
	for i := range b.policy.Spec.Validations {
		v := &b.policy.Spec.Validations[i]
		if trimmed := strings.TrimSpace(v.Message); strings.ContainsAny(trimmed, "\r\n") {
			v.Message = strings.Join(strings.Fields(trimmed), " ")
			b.change(fmt.Sprintf("spec.validations[%d].message", i), "the message is on one line")
		}
	}
}
