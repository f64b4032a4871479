package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every Ostiary kind.
const GroupName = "admission.ostiary.dev"

// GroupVersion is the group and version of this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &WebhookPolicy{}, &WebhookPolicyList{},
		&WebhookPolicyException{}, &WebhookPolicyExceptionList{},
		&ClusterWebhookPolicyException{}, &ClusterWebhookPolicyExceptionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
