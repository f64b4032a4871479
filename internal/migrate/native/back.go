package native

import (
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Back returns the conversion of WebhookPolicies to native policies and bindings.
func Back() conversion.Source {
	return conversion.Source{
		Title:   "WebhookPolicies",
		Kinds:   []schema.GroupKind{{Group: v1alpha1.GroupName, Kind: "WebhookPolicy"}},
		Convert: convertBack,
	}
}

func convertBack(in *conversion.Input) ([]conversion.Conversion, error) {
	taken := map[string]bool{}
	var out []conversion.Conversion
	for i := range in.Objects {
		c := conversion.Conversion{Source: in.Objects[i]}
		p := &v1alpha1.WebhookPolicy{}
		if c.Decode(p) && isExpressible(&c, &p.Spec) {
			if err := convertPolicyBack(&c, p, taken); err != nil {
				return nil, err
			}
		}
		out = append(out, c)
	}
	return out, nil
}

func convertPolicyBack(c *conversion.Conversion, p *v1alpha1.WebhookPolicy, taken map[string]bool) error {
	notes, err := conversion.ReadNativeNotes(&p.ObjectMeta)
	if err != nil {
		c.LeaveOutInvalid(c.Source.Errorf("metadata.annotations", "%v", err))
		return nil
	}
	b := backConversion{conversion: c, policy: p, notes: notes, taken: taken}
	return b.convert()
}

// isExpressible leaves out what native policies cannot express. Without it, the rest would
// decide differently.
func isExpressible(c *conversion.Conversion, s *v1alpha1.WebhookPolicySpec) bool {
	before := len(c.Rows)
	if s.Plugin != nil {
		c.LeaveOut("spec.plugin", "native policies have no plugins", "keep the WebhookPolicy")
	}
	if s.Backend != nil {
		c.LeaveOut("spec.backend", "native policies call no webhooks", "write a webhook configuration")
	}
	if len(s.Lookups) > 0 {
		c.LeaveOut("spec.lookups", "native policies cannot read other objects", "keep the WebhookPolicy")
	}
	for i, m := range s.MatchConditions {
		if celtext.Reads(m.Expression, "variables") {
			c.LeaveOut(
				fmt.Sprintf("spec.matchConditions[%d].expression", i),
				"API servers reject variables in matchConditions",
				"write the expression of the variable in the condition",
			)
		}
	}
	return len(c.Rows) == before
}

// backConversion is the conversion of one policy.
type backConversion struct {
	conversion *conversion.Conversion
	policy     *v1alpha1.WebhookPolicy
	notes      *conversion.NativeNotes
	taken      map[string]bool // kinds and names of bindings
}

func (b *backConversion) convert() error {
	s := &b.policy.Spec
	b.changes(s)
	if err := b.withoutCounterpart(s); err != nil {
		return err
	}
	metadata := conversion.Metadata(b.policy.ObjectMeta)
	if delete(metadata.Annotations, conversion.AnnotationNative); len(metadata.Annotations) == 0 {
		metadata.Annotations = nil
	}
	if b.notes.Name != "" {
		metadata.Name = b.notes.Name
	}
	if s.Mutates() {
		m := mutatingPolicy(metadata, s)
		b.addOutput(m, "")
		for i, binding := range s.EffectiveBindings() {
			if match, some := mutableResources(binding.MatchResources); some {
				name := b.bindingName(&binding, kindMutatingBinding)
				b.addOutput(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
					TypeMeta:   typeOf(kindMutatingBinding),
					ObjectMeta: b.bindingMetadata(binding.Name, name),
					Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
						PolicyName:     m.Name,
						ParamRef:       binding.ParamRef,
						MatchResources: match,
					},
				}, fmt.Sprintf("spec.bindings[%d]", i))
			}
		}
	}
	if s.Validates() {
		b.addOutput(validatingPolicy(metadata, s), "")
		for i, binding := range s.EffectiveBindings() {
			name := b.bindingName(&binding, kindValidatingBinding)
			b.addOutput(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				TypeMeta:   typeOf(kindValidatingBinding),
				ObjectMeta: b.bindingMetadata(binding.Name, name),
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName:        metadata.Name,
					ParamRef:          binding.ParamRef,
					MatchResources:    binding.MatchResources,
					ValidationActions: binding.ValidationActions,
				},
			}, fmt.Sprintf("spec.bindings[%d]", i))
		}
	}
	if !slices.ContainsFunc(b.conversion.Rows, func(r conversion.Row) bool { return r.Outcome == conversion.Changed }) {
		b.conversion.Add(conversion.Row{Outcome: conversion.Converted})
	}
	return nil
}

// changes reports fields without a native counterpart.
func (b *backConversion) changes(s *v1alpha1.WebhookPolicySpec) {
	for _, f := range []struct {
		set         bool
		field, what string
	}{
		{
			s.TimeoutSeconds != nil,
			"spec.timeoutSeconds",
			"the API server evaluates native policies itself: they have no timeout",
		},
		{s.Order != nil, "spec.order", "the order of native policies is not defined"},
		{s.BreakGlass, "spec.breakGlass", "native policies have no break glass: they apply to all users"},
		{
			s.PodTemplates != nil,
			"spec.podTemplates",
			"native policies decide about Pods, and not about the pod templates of workloads",
		},
		{s.Ratchet, "spec.ratchet", deniesExisting},
	} {
		if f.set {
			b.change(f.field, f.what)
		}
	}
	for i, v := range s.Validations {
		at := fmt.Sprintf("spec.validations[%d]", i)
		if v.Ratchet != nil && *v.Ratchet {
			b.change(at+".ratchet", deniesExisting)
		}
		if v.Name != "" {
			b.change(at+".name", fmt.Sprintf("native validations have no names: messages do not contain %q", v.Name))
		}
	}
}

// withoutCounterpart reports the fields that nothing above knows, so that none is lost
// without a word.
func (b *backConversion) withoutCounterpart(s *v1alpha1.WebhookPolicySpec) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return fmt.Errorf("reading the fields of %s: %w", b.policy.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !isKnown(name) {
			b.change("spec."+name, "native policies have no "+name)
		}
	}
	return nil
}

// isKnown reports whether native policies have a field, do without it, or changes says what
// becomes of it.
func isKnown(field string) bool {
	switch field {
	case "paramKind", "matchConstraints", "matchConditions", "variables", "mutations", "validations", "auditAnnotations",
		"bindings", "failurePolicy", "reinvocationPolicy",
		"allowCriticalResources", // native policies apply to them
		"timeoutSeconds", "order", "breakGlass", "podTemplates", "ratchet":
		return true
	}
	return false
}

// deniesExisting is the difference without ratchet.
const deniesExisting = "native policies have no ratchet: an UPDATE of an object that failed the validation before " +
	"is a failure too"

func (b *backConversion) change(field, how string) {
	b.conversion.Add(conversion.Row{Rule: field, Outcome: conversion.Changed, Detail: how})
}

// addOutput adds an object. Its form comes from the policy, or from one of its bindings.
func (b *backConversion) addOutput(o conversion.Object, field string) {
	origin := conversion.Origin{Source: &b.conversion.Source}
	if field != "" {
		origin.Field, origin.SourceField = "spec", field
	}
	b.conversion.Outputs = append(
		b.conversion.Outputs,
		&conversion.Output{Object: o, Origins: []conversion.Origin{origin}},
	)
}

// bindingName returns a name that no other binding of the kind has. Names of bindings are
// unique in a policy, and those of native bindings in the cluster.
func (b *backConversion) bindingName(binding *v1alpha1.Binding, kind string) string {
	name := binding.Name
	if note := b.notes.Bindings[binding.Name]; note.Name != "" {
		name = note.Name
	}
	if name == "" {
		name = b.policy.Name
	}
	if b.taken[kind+name] {
		name = b.policy.Name + "-" + name
	}
	b.taken[kind+name] = true
	return name
}

func (b *backConversion) bindingMetadata(binding, name string) metav1.ObjectMeta {
	note := b.notes.Bindings[binding]
	return metav1.ObjectMeta{Name: name, Labels: note.Labels, Annotations: note.Annotations}
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

func validatingPolicy(
	metadata metav1.ObjectMeta,
	s *v1alpha1.WebhookPolicySpec,
) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta: typeOf(kindValidating), ObjectMeta: metadata,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: s.ParamKind, MatchConstraints: s.MatchConstraints, MatchConditions: s.MatchConditions,
			Variables:        s.Variables,
			Validations:      s.NativeValidations(),
			AuditAnnotations: s.AuditAnnotations,
			FailurePolicy:    s.FailurePolicy,
		},
	}
}

func mutatingPolicy(
	metadata metav1.ObjectMeta,
	s *v1alpha1.WebhookPolicySpec,
) *admissionregistrationv1.MutatingAdmissionPolicy {
	match, _ := mutableResources(s.MatchConstraints)
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: typeOf(kindMutating), ObjectMeta: metadata,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: s.ParamKind, MatchConstraints: match, MatchConditions: s.MatchConditions,
			Variables:          s.Variables,
			Mutations:          s.Mutations,
			FailurePolicy:      s.FailurePolicy,
			ReinvocationPolicy: s.EffectiveReinvocationPolicy(),
		},
	}
}

// mutableResources returns what a MutatingAdmissionPolicy or its binding may match: everything
// but DELETE, for which mutations are not called. False means nothing.
func mutableResources(in *admissionregistrationv1.MatchResources) (*admissionregistrationv1.MatchResources, bool) {
	if in == nil {
		return nil, true
	}
	out := in.DeepCopy()
	out.ResourceRules = withoutDelete(out.ResourceRules)
	out.ExcludeResourceRules = withoutDelete(out.ExcludeResourceRules)
	return out, len(in.ResourceRules) == 0 || len(out.ResourceRules) > 0
}

func withoutDelete(
	rules []admissionregistrationv1.NamedRuleWithOperations,
) (out []admissionregistrationv1.NamedRuleWithOperations) {
	for _, rule := range rules {
		rule.Operations = slices.DeleteFunc(
			rule.Operations,
			func(o admissionregistrationv1.OperationType) bool { return o == admissionregistrationv1.Delete },
		)
		if len(rule.Operations) > 0 {
			out = append(out, rule)
		}
	}
	return out
}
