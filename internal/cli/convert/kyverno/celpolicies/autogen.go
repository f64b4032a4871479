package celpolicies

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/cli/convert/conversion"
)

// controllers are the resources to which Kyverno extends policies for Pods by default.
func controllers() []string {
	return []string{"deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"}
}

// autogen extends the policy to the workloads to which Kyverno extends it.
func (b *builder) autogen() {
	if !extends(b.common.MatchConstraints) {
		return
	}
	wanted := controllers()
	if a := b.common.Autogen; a != nil && a.PodControllers != nil && a.PodControllers.Controllers != nil {
		wanted = slices.DeleteFunc(wanted, func(c string) bool { return !slices.Contains(a.PodControllers.Controllers, c) })
	}
	if len(wanted) > 0 && !conversion.SetPodTemplates(b.policy, wanted) {
		b.Add(conversion.Row{Rule: "autogen", Field: "spec.autogen", Outcome: conversion.LeftOut, Output: b.output,
			Detail:      "the policy applies to Pods, and not to the Pod templates of " + strings.Join(wanted, ", "),
			Alternative: "Ostiary denies the Pods of these workloads instead"})
	}
}

// extends reports whether Kyverno extends a policy: one rule for Pods, without selectors.
func extends(m *admissionregistrationv1.MatchResources) bool {
	selects := func(s *metav1.LabelSelector) bool {
		return s != nil && (len(s.MatchLabels) > 0 || len(s.MatchExpressions) > 0)
	}
	if selects(m.NamespaceSelector) || selects(m.ObjectSelector) || len(m.ExcludeResourceRules) > 0 || len(m.ResourceRules) != 1 {
		return false
	}
	r := m.ResourceRules[0]
	return len(r.ResourceNames) == 0 && slices.Equal(r.APIGroups, []string{""}) && slices.Equal(r.APIVersions, []string{"v1"}) && slices.Equal(r.Resources, []string{"pods"})
}
