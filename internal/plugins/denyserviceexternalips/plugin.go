// Package denyserviceexternalips denies Services with new external IPs, which intercept
// traffic to these addresses.
package denyserviceexternalips

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Plugin denies external IPs that a Service did not have before.
type Plugin struct{}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginDenyServiceExternalIPs, func(define.None, *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return Plugin{}, nil
	})
}

// Rules implements pluginapi.Plugin.
func (Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{define.Rule("", "v1", define.Writes(), "services")}
}

// Validate implements pluginapi.Validator.
func (Plugin) Validate(_ context.Context, call *pluginapi.Call) error {
	if addresses(call.OldObject()).IsSuperset(addresses(call.Object())) {
		return nil
	}
	return call.Forbid("Use of external IPs is denied by admission control")
}

func addresses(service *unstructured.Unstructured) sets.Set[string] {
	if service == nil {
		return nil
	}
	list, _, _ := unstructured.NestedStringSlice(service.Object, "spec", "externalIPs") // the API server has checked its type
	return sets.New(list...)
}
