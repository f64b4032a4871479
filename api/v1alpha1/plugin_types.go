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
// +kubebuilder:validation:Enum=AlwaysPullImages;DenyServiceExternalIPs
type PluginName string

// The plugins.
const (
	// PluginAlwaysPullImages sets the pull policy of all images of a Pod to Always.
	PluginAlwaysPullImages PluginName = "AlwaysPullImages"
	// PluginDenyServiceExternalIPs refuses new external IPs of Services.
	PluginDenyServiceExternalIPs PluginName = "DenyServiceExternalIPs"
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
	switch n {
	case PluginAlwaysPullImages:
		return PluginTraits{Mutates: true, Validates: true, SideEffects: admissionregistrationv1.SideEffectClassNone}
	case PluginDenyServiceExternalIPs:
		return PluginTraits{Validates: true, SideEffects: admissionregistrationv1.SideEffectClassNone}
	default:
		return PluginTraits{SideEffects: admissionregistrationv1.SideEffectClassNone}
	}
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
