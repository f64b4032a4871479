// Package v1alpha1 declares the WebhookPolicy API, version v1alpha1 of the group
// admission.ostiary.dev.
//
// +kubebuilder:object:generate=true
// +groupName=admission.ostiary.dev
package v1alpha1
