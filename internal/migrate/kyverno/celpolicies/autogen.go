package celpolicies

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// defaultControllers are the resources to which Kyverno extends policies for Pods by default.
func defaultControllers() []string {
	return []string{"deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"}
}

// controllers returns the workloads to which Kyverno extends the policy.
func (b *builder) controllers() []string {
	if m := b.common.MatchConstraints; m == nil || !isExtended(m) {
		return nil
	}
	wanted := defaultControllers()
	if a := b.common.Autogen; a != nil && a.PodControllers != nil && a.PodControllers.Controllers != nil {
		wanted = slices.DeleteFunc(
			wanted,
			func(c string) bool { return !slices.Contains(a.PodControllers.Controllers, c) },
		)
	}
	return wanted
}

// autogen extends the policy to the workloads to which Kyverno extends it.
func (b *builder) autogen() {
	different := conversion.SetPodTemplates(b.policy, b.controllers())
	hasPatch := func(m admissionregistrationv1.Mutation) bool { return m.JSONPatch != nil }
	if b.policy.Spec.PodTemplates != nil && slices.ContainsFunc(b.policy.Spec.Mutations, hasPatch) {
		different = append(
			different,
			"for workloads, JSON patches change the pod template: Kyverno applies them to the workload",
		)
	}
	changesMetadata := func(m admissionregistrationv1.Mutation) bool {
		return m.ApplyConfiguration != nil && strings.Contains(m.ApplyConfiguration.Expression, "Object.metadata")
	}
	if b.policy.Spec.PodTemplates != nil && slices.ContainsFunc(b.policy.Spec.Mutations, changesMetadata) {
		different = append(
			different,
			"for workloads, metadata of the pod template is changed: Kyverno ignores it, or denies the workload",
		)
	}
	if len(different) > 0 {
		b.change("spec.autogen", conversion.JoinNotes(different))
	}
}

// isExtended reports whether Kyverno extends a policy: one rule for Pods, without selectors.
func isExtended(m *admissionregistrationv1.MatchResources) bool {
	selects := func(s *metav1.LabelSelector) bool {
		return s != nil && (len(s.MatchLabels) > 0 || len(s.MatchExpressions) > 0)
	}
	if selects(m.NamespaceSelector) || selects(m.ObjectSelector) || len(m.ExcludeResourceRules) > 0 ||
		len(m.ResourceRules) != 1 {
		return false
	}
	r := m.ResourceRules[0]
	return len(r.ResourceNames) == 0 && slices.Equal(r.APIGroups, []string{""}) &&
		slices.Equal(r.APIVersions, []string{"v1"}) && slices.Equal(r.Resources, []string{"pods"})
}
