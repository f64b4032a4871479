// Package podresources says what several plugins ask about the resources of a Pod.
package podresources

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// BestEffort reports whether a Pod asks for neither processors nor memory, and
// has no limit on them. What the Pod's status says comes first.
func BestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if r := pod.Spec.Resources; r != nil {
		return !asks(r.Requests) && !asks(r.Limits)
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if asks(list[i].Resources.Requests) || asks(list[i].Resources.Limits) {
				return false
			}
		}
	}
	return true
}

func asks(list corev1.ResourceList) bool {
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return cpu.Sign() > 0 || memory.Sign() > 0
}

// Extended reports whether a resource is neither Kubernetes' own nor one that
// only quotas have.
func Extended(name string) bool {
	return !Native(name) && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(content.IsLabelKey(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

// Native reports whether a resource is Kubernetes' own.
func Native(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}
