package resourcequota

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// Resources that consume more than their count.
const (
	pods     = "pods"
	claims   = "persistentvolumeclaims"
	services = "services"
)

// measured reports whether a resource consumes more than its count, so that updates
// matter.
func measured(gr schema.GroupResource) bool {
	return gr.Group == corev1.GroupName && (gr.Resource == pods || gr.Resource == claims || gr.Resource == services)
}

// evaluatorOf returns the evaluator of a resource. This package implements those that are
// in the program of the API server and not in its library.
func evaluatorOf(gr schema.GroupResource) quota.Evaluator {
	if gr.Group == corev1.GroupName {
		switch gr.Resource {
		case pods:
			return evaluator{resource: gr, handles: handlesPod, names: namesOfPods, usage: usageOfPod, inScope: podInScope}
		case claims:
			return evaluator{resource: gr, handles: handlesWrites, names: namesOfClaims, usage: usageOfClaim, inScope: claimInScope}
		case services:
			return evaluator{resource: gr, handles: handlesWrites, names: namesOfServices, usage: usageOfService, inScope: generic.MatchesNoScopeFunc}
		case "configmaps", "resourcequotas", "replicationcontrollers", "secrets": // counted before there was a name for all resources
			return generic.NewObjectCountEvaluator(gr, nil, corev1.ResourceName(gr.Resource))
		}
	}
	return generic.NewObjectCountEvaluator(gr, nil, "")
}

func handlesWrites(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// evaluator implements quota.Evaluator for resources that consume more than their count.
type evaluator struct {
	resource schema.GroupResource
	handles  func(admission.Attributes) bool
	names    generic.MatchingResourceNamesFunc
	usage    generic.UsageFunc
	inScope  generic.MatchesScopeFunc
}

var _ quota.Evaluator = evaluator{}

// Constraints implements quota.Evaluator. The API server checks constraints.
func (evaluator) Constraints([]corev1.ResourceName, runtime.Object) error { return nil }

// GroupResource implements quota.Evaluator.
func (e evaluator) GroupResource() schema.GroupResource { return e.resource }

// Handles implements quota.Evaluator.
func (e evaluator) Handles(a admission.Attributes) bool { return e.handles(a) }

// Matches implements quota.Evaluator.
func (e evaluator) Matches(q *corev1.ResourceQuota, object runtime.Object) (bool, error) {
	return generic.Matches(q, object, e.names, e.inScope)
}

// MatchingScopes implements quota.Evaluator.
func (e evaluator) MatchingScopes(object runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, s := range scopes {
		in, err := e.inScope(s, object)
		if err != nil {
			return nil, fmt.Errorf("matching the scope %s: %w", s.ScopeName, err)
		}
		if in {
			out = append(out, s)
		}
	}
	return out, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (evaluator) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	covered := map[corev1.ResourceQuotaScope]bool{}
	for _, s := range matched {
		covered[s.ScopeName] = true
	}
	var out []corev1.ScopedResourceSelectorRequirement
	for _, s := range limited {
		if !covered[s.ScopeName] {
			out = append(out, s)
		}
	}
	return out, nil
}

// MatchingResources implements quota.Evaluator.
func (e evaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return e.names(names)
}

// Usage implements quota.Evaluator.
func (e evaluator) Usage(object runtime.Object) (corev1.ResourceList, error) { return e.usage(object) }

// UsageStats implements quota.Evaluator.
func (evaluator) UsageStats(quota.UsageStatsOptions) (quota.UsageStats, error) {
	return quota.UsageStats{}, errors.New("nothing is counted here")
}

// refusing denies requests that the native plugin answers with a server error.
type refusing struct {
	quota.Evaluator
	attributes attributes
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (r refusing) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	uncovered, err := r.Evaluator.UncoveredQuotaScopes(limited, matched)
	if err != nil || len(uncovered) == 0 {
		return uncovered, err
	}
	return nil, admission.NewForbidden(r.attributes, fmt.Errorf("insufficient quota to match these scopes: %v", uncovered))
}

// selectorOf returns the selector of a scope, on the name of the selected thing.
func selectorOf(s corev1.ScopedResourceSelectorRequirement) (labels.Selector, error) {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	operator, ok := operators[s.Operator]
	if !ok {
		return nil, fmt.Errorf("write In, NotIn, Exists or DoesNotExist as the operator instead of %q", s.Operator)
	}
	r, err := labels.NewRequirement(string(s.ScopeName), operator, s.Values)
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(*r), nil
}
