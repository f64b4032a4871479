package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Plugin names an admission plugin of Ostiary that decides instead of expressions,
// like the plugin of the same name in the API server.
type Plugin struct {
	// name of the plugin.
	// +required
	Name PluginName `json:"name"`

	// config is the content of the configuration file of the API server's plugin.
	// Without it, the defaults of the plugin apply.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Config *runtime.RawExtension `json:"config,omitempty"`
}

// PluginName is the name of a plugin.
//
// +kubebuilder:validation:Enum=AlwaysDeny;AlwaysPullImages;DefaultIngressClass;DefaultStorageClass;DefaultTolerationSeconds;DenyServiceExternalIPs;EventRateLimit;ExtendedResourceToleration;ImagePolicyWebhook;LimitPodHardAntiAffinityTopology;OwnerReferencesPermissionEnforcement;PodNodeSelector;PodSecurity;PodTolerationRestriction;ResourceQuota
type PluginName string

// The plugins.
const (
	// PluginAlwaysDeny denies every request, for example during maintenance.
	PluginAlwaysDeny PluginName = "AlwaysDeny"
	// PluginAlwaysPullImages sets the pull policy of all images of a Pod to Always.
	PluginAlwaysPullImages PluginName = "AlwaysPullImages"
	// PluginDefaultIngressClass sets the class of the namespace, or the default,
	// on Ingresses without one.
	PluginDefaultIngressClass PluginName = "DefaultIngressClass"
	// PluginDefaultStorageClass sets the class of the namespace, or the default,
	// on claims without one.
	PluginDefaultStorageClass PluginName = "DefaultStorageClass"
	// PluginDefaultTolerationSeconds sets how long Pods stay on a failed node.
	PluginDefaultTolerationSeconds PluginName = "DefaultTolerationSeconds"
	// PluginDenyServiceExternalIPs denies new external IPs of Services.
	PluginDenyServiceExternalIPs PluginName = "DenyServiceExternalIPs"
	// PluginEventRateLimit limits how many events are written.
	PluginEventRateLimit PluginName = "EventRateLimit"
	// PluginExtendedResourceToleration adds tolerations for the taints of nodes with
	// extended resources to Pods that request them.
	PluginExtendedResourceToleration PluginName = "ExtendedResourceToleration"
	// PluginImagePolicyWebhook asks a backend about the images of Pods.
	PluginImagePolicyWebhook PluginName = "ImagePolicyWebhook"
	// PluginLimitPodHardAntiAffinityTopology denies Pods whose required anti-affinity
	// has another topology key than the node.
	PluginLimitPodHardAntiAffinityTopology PluginName = "LimitPodHardAntiAffinityTopology"
	// PluginOwnerReferencesPermissionEnforcement denies owner references of users
	// without the permission to delete the object or to set finalizers of the owner.
	PluginOwnerReferencesPermissionEnforcement PluginName = "OwnerReferencesPermissionEnforcement"
	// PluginPodNodeSelector restricts the Pods of a namespace to some nodes.
	PluginPodNodeSelector PluginName = "PodNodeSelector"
	// PluginPodSecurity denies Pods that violate the Pod Security Standards.
	PluginPodSecurity PluginName = "PodSecurity"
	// PluginPodTolerationRestriction adds tolerations to Pods and restricts them.
	PluginPodTolerationRestriction PluginName = "PodTolerationRestriction"
	// PluginResourceQuota denies requests for limited resources without a quota.
	PluginResourceQuota PluginName = "ResourceQuota"
)

// PluginTraits are the properties that a plugin's name implies.
type PluginTraits struct {
	// Mutates and Validates are the phases in which the plugin is called.
	Mutates, Validates bool
	// SideEffects are the side effects of a call.
	SideEffects admissionregistrationv1.SideEffectClass
}

// Traits returns the traits of the plugin. An unknown plugin has none.
func (n PluginName) Traits() PluginTraits {
	traits := PluginTraits{SideEffects: admissionregistrationv1.SideEffectClassNone}
	switch n {
	case PluginAlwaysPullImages, PluginPodNodeSelector, PluginPodTolerationRestriction:
		traits.Mutates, traits.Validates = true, true
	case PluginDefaultIngressClass, PluginDefaultStorageClass, PluginDefaultTolerationSeconds, PluginExtendedResourceToleration:
		traits.Mutates = true
	case PluginAlwaysDeny, PluginDenyServiceExternalIPs, PluginLimitPodHardAntiAffinityTopology, PluginOwnerReferencesPermissionEnforcement,
		PluginPodSecurity, PluginResourceQuota, PluginImagePolicyWebhook:
		traits.Validates = true
	case PluginEventRateLimit: // it counts requests, except dry runs
		traits.Validates, traits.SideEffects = true, admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	return traits
}

// DecidesTemplates reports whether the plugin decides about the spec and the metadata of
// a Pod, so that it can decide about those of pod templates.
func (n PluginName) DecidesTemplates() bool {
	switch n {
	case PluginAlwaysPullImages, PluginDefaultTolerationSeconds, PluginExtendedResourceToleration, PluginImagePolicyWebhook,
		PluginLimitPodHardAntiAffinityTopology, PluginPodNodeSelector, PluginPodSecurity, PluginPodTolerationRestriction:
		return true
	}
	return false
}

// traits returns the traits of the policy's plugin, empty ones without a plugin.
func (s *WebhookPolicySpec) traits() PluginTraits {
	if s.Plugin == nil {
		return PluginTraits{SideEffects: admissionregistrationv1.SideEffectClassNone}
	}
	return s.Plugin.Name.Traits()
}

// SideEffects returns the side effects of a call for this policy.
func (s *WebhookPolicySpec) SideEffects() admissionregistrationv1.SideEffectClass {
	return s.traits().SideEffects
}
