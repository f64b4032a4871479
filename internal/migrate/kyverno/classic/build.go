package classic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// builder makes policies of the converted rules of one source.
type builder struct {
	*conversion.Conversion
	source     *clusterPolicy
	exceptions []*appliedException
	rules      []placedRule
	shared     []conversion.Row // about several rules
}

// key has what rules of one policy share.
func (p placedRule) key() []string {
	var key []string
	for _, v := range []any{
		p.rules,
		p.conditions,
		p.selector,
		p.extends,
		p.paramKind,
		p.paramRef,
		p.failureAction,
		p.failureOverride,
		p.ratchet,
		p.podSecurity,
		p.templates,
		p.lookups,
		len(p.mutations) > 0,
	} {
		text, _ := json.Marshal(v)
		key = append(key, string(text))
	}
	return key
}

// build makes a policy of each group of rules with the same requests.
func (b *builder) build() {
	var groups [][]placedRule
	for _, r := range b.rules {
		i := slices.IndexFunc(groups, func(g []placedRule) bool { return g[0].sameRequests(r) && r.podSecurity == nil })
		if i >= 0 && !haveConflictingVariables(groups[i], r) {
			groups[i] = append(groups[i], r)
		} else {
			groups = append(groups, []placedRule{r})
		}
	}
	for _, g := range groups {
		suffix := ""
		if len(groups) > 1 {
			suffix = g[0].name
		}
		b.buildGroup(g, suffix)
	}
	b.orderMutations()
}

// orderMutations gives policies that mutate the order of their rules.
func (b *builder) orderMutations() {
	var mutating []*v1alpha1.WebhookPolicy
	for _, o := range b.Outputs {
		if p := o.Policy(); len(p.Spec.Mutations) > 0 {
			mutating = append(mutating, p)
		}
	}
	if len(mutating) < 2 {
		return
	}
	order := v1alpha1.DefaultOrder
	for _, p := range mutating {
		p.Spec.Order = new(order)
		order++
	}
}

// haveConflictingVariables reports whether a rule has a variable that others define differently.
func haveConflictingVariables(group []placedRule, r placedRule) bool {
	for _, other := range group {
		for _, v := range other.variables {
			if slices.ContainsFunc(
				r.variables,
				func(
					w admissionregistrationv1.Variable,
				) bool {
					return v.Name == w.Name && v.Expression != w.Expression
				},
			) {
				return true
			}
		}
	}
	return false
}

func (b *builder) buildGroup(group []placedRule, suffix string) {
	first := group[0]
	o := conversion.NewPolicy(&b.Source, b.metadata(suffix))
	p := o.Policy()
	p.Spec = v1alpha1.WebhookPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			ResourceRules:     first.rules,
			NamespaceSelector: first.selector,
		},
		MatchConditions: first.conditions,
		ParamKind:       first.paramKind,
		Lookups:         first.policyLookups(),
		FailurePolicy:   b.failurePolicy(),
		TimeoutSeconds:  b.timeout(),
	}
	if w := b.source.Spec.WebhookConfiguration; w != nil {
		p.Spec.MatchConditions = append(slices.Clone(w.MatchConditions), first.conditions...)
	}
	for _, r := range group {
		for _, v := range r.variables {
			if !slices.Contains(p.Spec.Variables, v) {
				p.Spec.Variables = append(p.Spec.Variables, v)
			}
		}
		o.Origins = append(o.Origins, conversion.Origin{
			Field: r.placeIn(p), Source: &b.Source, SourceField: r.row.Field, CommentsOnly: true,
		})
		addValidations(p, r)
		p.Spec.AuditAnnotations = append(p.Spec.AuditAnnotations, r.annotations...)
		p.Spec.Mutations = append(p.Spec.Mutations, r.mutations...)
	}
	if first.podSecurity != nil {
		p.Spec.Plugin = podSecurityPlugin(first.podSecurity)
	}
	p.Spec.Ratchet = first.ratchet
	b.addExceptionObjects(o, group)
	o.SetBackground("spec.background", b.source.Spec.Background)
	b.bind(o, group)
	if conversion.NamesCriticalResources(p) {
		p.Spec.AllowCriticalResources = true
	}
	b.Outputs = append(b.Outputs, o)
	b.report(o, group, b.extend(p, group))
	o.Origins = append(o.Origins, conversion.Origin{
		Field: "spec", Source: &b.Source, SourceField: "spec", CommentsOnly: true, Except: "rules",
	})
}

// placeIn returns the field of a policy that the rule becomes, if it is the next one.
func (p placedRule) placeIn(w *v1alpha1.WebhookPolicy) string {
	switch {
	case p.podSecurity != nil:
		return "spec.plugin"
	case len(p.mutations) > 0:
		return fmt.Sprintf("spec.mutations[%d]", len(w.Spec.Mutations))
	}
	return fmt.Sprintf("spec.validations[%d]", len(w.Spec.Validations))
}

// extend extends a group to the workloads to which Kyverno extends it, and returns the
// differences.
func (b *builder) extend(p *v1alpha1.WebhookPolicy, group []placedRule) []string {
	first, kinds := group[0], b.controllerKinds()
	switch {
	case len(first.templates) > 0:
		kinds = first.templates
	case !first.extends || !b.extends():
		return nil
	}
	resources := make([]string, len(kinds))
	for i, kind := range kinds {
		resources[i] = controllerResources()[kind]
	}
	notes := conversion.SetPodTemplates(p, resources)
	if fails := func(r placedRule) bool { return r.fails }; p.Spec.Ratchet && slices.ContainsFunc(group, fails) {
		notes = append(notes, conversion.NoteUnchangedTemplates)
	}
	return notes
}

// report writes the rows of the rules of a policy. Notes of several rules are in a row of their own.
func (b *builder) report(o *conversion.Output, group []placedRule, notes []string) {
	count := map[string]int{}
	for _, r := range group {
		for _, n := range slices.Concat(r.notes, notes) {
			count[n]++
		}
	}
	var shared []string
	for _, r := range group {
		var own []string
		for _, n := range slices.Concat(r.notes, notes) {
			switch {
			case count[n] == 1:
				own = append(own, n)
			case !slices.Contains(shared, n):
				shared = append(shared, n)
			}
		}
		r.row.Outcome, r.row.Output = conversion.Converted, o
		if len(own) > 0 {
			r.row.Outcome, r.row.Detail = conversion.Changed, conversion.JoinNotes(own)
		}
	}
	if len(shared) > 0 {
		b.shared = append(b.shared, conversion.Row{
			Rule: "spec.rules", Outcome: conversion.Changed, Output: o, Detail: conversion.JoinNotes(shared),
		})
	}
}

// enforces reports whether the rule denies requests.
func (c *convertedRule) enforces(p *clusterPolicy) bool {
	action := c.failureAction
	if action == "" {
		action = p.Spec.ValidationFailureAction
	}
	return strings.EqualFold(action, "enforce")
}

// annotationControllers names the workloads to which Kyverno extends a policy for Pods.
const annotationControllers = "pod-policies.kyverno.io/autogen-controllers"

// controllerResources are the resources of the workloads that have pod templates, by kind.
func controllerResources() map[string]string {
	return map[string]string{
		"Deployment":            "deployments",
		"StatefulSet":           "statefulsets",
		"DaemonSet":             "daemonsets",
		"ReplicaSet":            "replicasets",
		"Job":                   "jobs",
		"CronJob":               "cronjobs",
		"ReplicationController": "replicationcontrollers",
	}
}

// controllerKinds returns the kinds of the workloads to which Kyverno extends the policy.
func (b *builder) controllerKinds() []string {
	text, ok := b.source.Annotations[annotationControllers]
	if !ok || text == "all" {
		text = "Deployment,StatefulSet,DaemonSet,ReplicaSet,Job,CronJob,ReplicationController"
	}
	var wanted []string
	for kind := range strings.SplitSeq(text, ",") {
		if kind = strings.TrimSpace(kind); controllerResources()[kind] != "" {
			wanted = append(wanted, kind)
		}
	}
	return wanted
}

func (b *builder) failurePolicy() *admissionregistrationv1.FailurePolicyType {
	text := b.source.Spec.failurePolicy()
	if text == "" {
		return nil
	}
	return new(admissionregistrationv1.FailurePolicyType(text))
}

// failurePolicy returns the name of the failure policy, which may be empty.
func (s *policySpec) failurePolicy() string {
	if w := s.WebhookConfiguration; w != nil && w.FailurePolicy != "" {
		return w.FailurePolicy
	}
	return s.FailurePolicy
}

func (b *builder) timeout() *int32 {
	if w := b.source.Spec.WebhookConfiguration; w != nil && w.TimeoutSeconds != nil {
		return w.TimeoutSeconds
	}
	return b.source.Spec.WebhookTimeoutSeconds
}

// bind adds the bindings: one for each override of the action, and one for the rest.
func (b *builder) bind(o *conversion.Output, group []placedRule) {
	p, first := o.Policy(), group[0]
	action, overrides := first.failureAction, first.failureOverride
	if action == "" {
		action = b.source.Spec.ValidationFailureAction
	}
	if len(overrides) == 0 {
		overrides = b.source.Spec.ValidationFailureActionOverrides
	}
	rest := v1alpha1.Binding{
		Name:              conversion.BindingName,
		ParamRef:          first.paramRef,
		ValidationActions: b.actions(action),
	}
	var excluded []metav1.LabelSelectorRequirement
	for i, ov := range overrides {
		selector, ok := selectorOfOverride(ov)
		if !ok {
			b.Add(conversion.Row{Rule: "validationFailureActionOverrides", Outcome: conversion.LeftOut, Output: o,
				Detail: fmt.Sprintf(
					"the override with the action %s has wildcards or a selector beside others, which bindings do "+
						"not express",
					ov.Action,
				), Alternative: "name the namespaces"})
			continue
		}
		selector.MatchExpressions = append(selector.MatchExpressions, excluded...)
		p.Spec.Bindings = append(p.Spec.Bindings, v1alpha1.Binding{
			Name: fmt.Sprintf("override-%d", i+1), ParamRef: first.paramRef, ValidationActions: b.actions(ov.Action),
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: selector},
		})
		for _, r := range selector.MatchExpressions[:len(selector.MatchExpressions)-len(excluded)] {
			excluded = append(excluded, oppositeRequirement(r))
		}
	}
	if len(excluded) > 0 {
		rest.MatchResources = &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: excluded},
		}
	}
	p.Spec.Bindings = append(p.Spec.Bindings, rest)
	if b.Source.Kind == kindPolicy {
		b.restrict(p)
	}
}

// actions returns the actions of a policy.
func (b *builder) actions(action string) []admissionregistrationv1.ValidationAction {
	if strings.EqualFold(action, "enforce") {
		return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	if b.source.Spec.EmitWarning {
		return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}
	}
	return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
}

// selectorOfOverride returns the namespaces of an override as one requirement, so that the
// other bindings can exclude it.
func selectorOfOverride(o override) (*metav1.LabelSelector, bool) {
	if slices.ContainsFunc(o.Namespaces, scalar.HasWildcard) {
		return nil, false
	}
	s := &metav1.LabelSelector{}
	if len(o.Namespaces) > 0 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key:      corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpIn,
			Values:   o.Namespaces,
		})
	}
	if n := o.NamespaceSelector; n != nil {
		for key, value := range n.MatchLabels {
			s.MatchExpressions = append(
				s.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}},
			)
		}
		s.MatchExpressions = append(s.MatchExpressions, n.MatchExpressions...)
	}
	return s, len(s.MatchExpressions) == 1
}

func oppositeRequirement(r metav1.LabelSelectorRequirement) metav1.LabelSelectorRequirement {
	opposites := map[metav1.LabelSelectorOperator]metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn: metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpNotIn: metav1.LabelSelectorOpIn,
		metav1.LabelSelectorOpExists:       metav1.LabelSelectorOpDoesNotExist,
		metav1.LabelSelectorOpDoesNotExist: metav1.LabelSelectorOpExists,
	}
	r.Operator = opposites[r.Operator]
	return r
}

// restrict restricts the policy to the namespace of its source.
func (b *builder) restrict(p *v1alpha1.WebhookPolicy) {
	only := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: b.namespace()}}
	if s := p.Spec.MatchConstraints.NamespaceSelector; s != nil {
		both := s.DeepCopy()
		metav1.AddLabelToSelector(both, corev1.LabelMetadataName, b.namespace())
		only = both
	}
	p.Spec.MatchConstraints.NamespaceSelector = only
	for i := range p.Spec.MatchConstraints.ResourceRules {
		p.Spec.MatchConstraints.ResourceRules[i].Scope = new(admissionregistrationv1.NamespacedScope)
	}
}

// addValidations adds the validations of a rule, with its name if that is a DNS label.
func addValidations(p *v1alpha1.WebhookPolicy, r placedRule) {
	added := v1alpha1.ValidationsOf(r.validations)
	taken := p.Spec.ValidationNames()
	for i := range added {
		name := r.name
		if len(added) > 1 {
			name = fmt.Sprintf("%s-%d", r.name, i+1)
		}
		if len(utilvalidation.IsDNS1123Label(name)) > 0 || slices.Contains(taken, name) {
			continue
		}
		added[i].Name = name
		r.row.Validations = append(r.row.Validations, name)
	}
	if len(r.row.Validations) < len(added) {
		r.row.Validations = nil // they do not stand for the rule
	}
	p.Spec.Validations = append(p.Spec.Validations, added...)
}

// nameOf returns a valid name of an object.
func nameOf(name string) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name), "-.")
	return name
}
