// Package podresources classifies the resources of Pods, for several plugins.
package podresources

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// BestEffort reports whether a Pod has no requests and limits of CPU and memory. The
// class in its status takes precedence.
func BestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if r := pod.Spec.Resources; r != nil {
		return !hasCPUOrMemory(r.Requests) && !hasCPUOrMemory(r.Limits)
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if hasCPUOrMemory(list[i].Resources.Requests) || hasCPUOrMemory(list[i].Resources.Limits) {
				return false
			}
		}
	}
	return true
}

// hasCPUOrMemory reports whether a list has an amount of CPU or memory.
func hasCPUOrMemory(list corev1.ResourceList) bool {
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return cpu.Sign() > 0 || memory.Sign() > 0
}

// Extended reports whether a resource belongs neither to Kubernetes nor only to quotas.
func Extended(name string) bool {
	return !Native(name) && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(content.IsLabelKey(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

// Native reports whether a resource belongs to Kubernetes.
func Native(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}
