package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Plugin names an admission plugin that ships with Ostiary and decides instead
// of expressions, as the plugin of the same name in the API server would.
type Plugin struct {
	// name of the plugin.
	// +required
	Name PluginName `json:"name"`

	// config is what the API server's own plugin of this name reads from its
	// configuration file. Without any, the plugin's defaults hold.
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
	// PluginAlwaysDeny refuses everything: a maintenance freeze.
	PluginAlwaysDeny PluginName = "AlwaysDeny"
	// PluginAlwaysPullImages sets the pull policy of all images of a Pod to Always.
	PluginAlwaysPullImages PluginName = "AlwaysPullImages"
	// PluginDefaultIngressClass gives Ingresses without a class that of their namespace.
	PluginDefaultIngressClass PluginName = "DefaultIngressClass"
	// PluginDefaultStorageClass gives claims without a class that of their namespace.
	PluginDefaultStorageClass PluginName = "DefaultStorageClass"
	// PluginDefaultTolerationSeconds sets how long Pods stay on a node that fails.
	PluginDefaultTolerationSeconds PluginName = "DefaultTolerationSeconds"
	// PluginDenyServiceExternalIPs refuses new external IPs of Services.
	PluginDenyServiceExternalIPs PluginName = "DenyServiceExternalIPs"
	// PluginEventRateLimit limits how many events are written.
	PluginEventRateLimit PluginName = "EventRateLimit"
	// PluginExtendedResourceToleration lets Pods that ask for extended resources onto
	// nodes that are tainted for them.
	PluginExtendedResourceToleration PluginName = "ExtendedResourceToleration"
	// PluginImagePolicyWebhook asks a backend about the images of Pods.
	PluginImagePolicyWebhook PluginName = "ImagePolicyWebhook"
	// PluginLimitPodHardAntiAffinityTopology refuses Pods that keep others off
	// more than a node.
	PluginLimitPodHardAntiAffinityTopology PluginName = "LimitPodHardAntiAffinityTopology"
	// PluginOwnerReferencesPermissionEnforcement refuses owner references from those
	// who may not delete the object, or write the owner's finalizers.
	PluginOwnerReferencesPermissionEnforcement PluginName = "OwnerReferencesPermissionEnforcement"
	// PluginPodNodeSelector keeps the Pods of a namespace to some nodes.
	PluginPodNodeSelector PluginName = "PodNodeSelector"
	// PluginPodSecurity refuses Pods that do not meet the Pod Security Standards.
	PluginPodSecurity PluginName = "PodSecurity"
	// PluginPodTolerationRestriction gives Pods tolerations, and limits those that they
	// have.
	PluginPodTolerationRestriction PluginName = "PodTolerationRestriction"
	// PluginResourceQuota refuses what consumes a limited resource without a quota.
	PluginResourceQuota PluginName = "ResourceQuota"
)

// PluginTraits are what is known of a plugin by its name alone.
type PluginTraits struct {
	// Mutates and Validates are the phases of admission that it is called in.
	Mutates, Validates bool
	// SideEffects are those of a call.
	SideEffects admissionregistrationv1.SideEffectClass
}

// Traits are those of the plugin. One that is not known has none.
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
	case PluginEventRateLimit: // it counts, but not dry runs
		traits.Validates, traits.SideEffects = true, admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	return traits
}

// traits are those of the policy's plugin; without one they are empty.
func (s *WebhookPolicySpec) traits() PluginTraits {
	if s.Plugin == nil {
		return PluginTraits{SideEffects: admissionregistrationv1.SideEffectClassNone}
	}
	return s.Plugin.Name.Traits()
}

// SideEffects are those of Ostiary's answer to a request that the policy matches.
func (s *WebhookPolicySpec) SideEffects() admissionregistrationv1.SideEffectClass {
	return s.traits().SideEffects
}
