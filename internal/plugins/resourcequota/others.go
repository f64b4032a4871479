package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

const (
	countOfClaims   = "count/persistentvolumeclaims"
	countOfServices = "count/services"
	// classSuffix follows the name of a storage class in the name of a resource.
	classSuffix = ".storageclass.storage.k8s.io/"
)

func claimOf(object runtime.Object) (*corev1.PersistentVolumeClaim, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil, fmt.Errorf("expected a PersistentVolumeClaim instead of %T", object)
	}
	return claim, nil
}

// namesOfClaims returns the names that claims consume.
func namesOfClaims(names []corev1.ResourceName) []corev1.ResourceName {
	plain := []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	var out []corev1.ResourceName
	for _, name := range names {
		if name == countOfClaims || slices.Contains(plain, name) ||
			slices.ContainsFunc(plain, func(p corev1.ResourceName) bool { return strings.HasSuffix(string(name), classSuffix+string(p)) }) {
			out = append(out, name)
		}
	}
	return out
}

// usageOfClaim returns the consumption of a claim, also for its class.
func usageOfClaim(object runtime.Object) (corev1.ResourceList, error) {
	claim, err := claimOf(object)
	if err != nil {
		return nil, err
	}
	out := corev1.ResourceList{countOfClaims: one(), corev1.ResourcePersistentVolumeClaims: one()}
	if storage, ok := storageOf(claim); ok {
		out[corev1.ResourceRequestsStorage] = storage
	}
	class, annotated := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if !annotated {
		class = ptr.Deref(claim.Spec.StorageClassName, "")
	}
	if class == "" {
		return out, nil
	}
	for _, name := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage} {
		if amount, ok := out[name]; ok {
			out[corev1.ResourceName(class+classSuffix)+name] = amount
		}
	}
	return out, nil
}

// storageOf returns the requested storage of a claim, or the allocated storage if that is
// more.
func storageOf(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return size, false
	}
	if allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]; allocated.Cmp(size) > 0 {
		size = allocated
	}
	size = size.DeepCopy()
	size.RoundUp(0)
	return size, true
}

func claimInScope(s corev1.ScopedResourceSelectorRequirement, object runtime.Object) (bool, error) {
	claim, err := claimOf(object)
	if err != nil || s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, err
	}
	names := []string{ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")}
	if m := claim.Status.ModifyVolumeStatus; m != nil {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	return inNamedScope(s, names...)
}

// namesOfServices returns the names that Services consume.
func namesOfServices(names []corev1.ResourceName) []corev1.ResourceName {
	known := []corev1.ResourceName{countOfServices, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}
	return slices.DeleteFunc(slices.Clone(names), func(name corev1.ResourceName) bool { return !slices.Contains(known, name) })
}

// usageOfService returns the consumption of a Service, with the node ports that it will
// have.
func usageOfService(object runtime.Object) (corev1.ResourceList, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("expected a Service instead of %T", object)
	}
	out := corev1.ResourceList{countOfServices: one(), corev1.ResourceServices: one()}
	nodePorts := 0
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		nodePorts = len(service.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		out[corev1.ResourceServicesLoadBalancers] = one()
		for _, p := range service.Spec.Ports {
			if ptr.Deref(service.Spec.AllocateLoadBalancerNodePorts, true) || p.NodePort != 0 {
				nodePorts++
			}
		}
	}
	out[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(nodePorts), resource.DecimalSI)
	return out, nil
}
