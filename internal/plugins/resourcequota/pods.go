package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/ostiary/ostiary/internal/plugins/podresources"
)

const countOfPods = "count/pods"

// handlesPod reports whether a request can change consumption: also an update to another
// scope or of resources.
func handlesPod(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "resize":
		return a.GetOperation() == admission.Update
	case "":
		if a.GetOperation() != admission.Update {
			return a.GetOperation() == admission.Create
		}
		after, err := podOf(a.GetObject())
		before, errBefore := podOf(a.GetOldObject())
		return err == nil && errBefore == nil && terminating(before) != terminating(after)
	}
	return false
}

func podOf(object runtime.Object) (*corev1.Pod, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("expected a Pod instead of %T", object)
	}
	return pod, nil
}

// namesOfPods returns the names that Pods consume.
func namesOfPods(names []corev1.ResourceName) []corev1.ResourceName {
	plain := []corev1.ResourceName{
		countOfPods, corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
	}
	var out []corev1.ResourceName
	for _, name := range names {
		request, prefixed := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		switch {
		case slices.Contains(plain, name), strings.HasPrefix(request, corev1.ResourceHugePagesPrefix),
			prefixed && (!podresources.Native(string(name)) || strings.HasPrefix(request, resourcev1.ResourceDeviceClassPrefix)):
			out = append(out, name)
		}
	}
	return out
}

// usageOfPod returns the consumption of a Pod. A finished Pod consumes only its count.
func usageOfPod(object runtime.Object) (corev1.ResourceList, error) {
	pod, err := podOf(object)
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{countOfPods: one()}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return out, nil
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	requests, limits := resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)
	return quota.Add(out, compute(requests, limits)), nil
}

func compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: one()}
	for name, amount := range requests {
		request := corev1.DefaultResourceRequestsPrefix + name
		switch {
		case ordinary(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			out[name], out[request] = amount, amount
		case podresources.Extended(string(name)) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix):
			out[request] = amount
		}
	}
	for name, amount := range limits {
		if ordinary(name) {
			out["limits."+name] = amount
		}
	}
	return out
}

func ordinary(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

func podInScope(s corev1.ScopedResourceSelectorRequirement, object runtime.Object) (bool, error) {
	pod, err := podOf(object)
	if err != nil {
		return false, err
	}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return podresources.BestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !podresources.BestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		return inNamedScope(s, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod.Spec.Affinity), nil
	}
	return false, nil
}

// inNamedScope reports whether one of the names is selected. Empty names do not count.
// NotIn and DoesNotExist also select objects without a name.
func inNamedScope(s corev1.ScopedResourceSelectorRequirement, names ...string) (bool, error) {
	selector, err := selectorOf(s)
	if err != nil {
		return false, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return selector.Matches(labels.Set{}), nil
	}
	return slices.ContainsFunc(names, func(name string) bool { return selector.Matches(labels.Set{string(s.ScopeName): name}) }), nil
}

func terminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if p := a.PodAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for i := range weighted {
		terms = append(terms, weighted[i].PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
