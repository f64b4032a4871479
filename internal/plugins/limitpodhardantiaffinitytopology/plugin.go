// Package limitpodhardantiaffinitytopology denies Pods with required anti-affinity for
// more than one node: such a Pod can occupy a whole zone.
package limitpodhardantiaffinitytopology

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Plugin denies required anti-affinity for topologies other than nodes.
type Plugin struct{}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginLimitPodHardAntiAffinityTopology, func(define.None, *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return Plugin{}, nil
	})
}

// Rules implements pluginapi.Plugin.
func (Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return define.Pods(define.Writes()...)
}

// Validate implements pluginapi.Validator.
func (Plugin) Validate(_ context.Context, call *pluginapi.Call) error {
	pod, err := call.RequireObject()
	if err != nil {
		return err
	}
	terms, _, _ := unstructured.NestedFieldNoCopy(pod.Object, "spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution") // the API server has checked its type
	list, _ := terms.([]any)
	for _, item := range list {
		term, _ := item.(map[string]any)
		if key, _ := term["topologyKey"].(string); key != corev1.LabelHostname {
			return apierrors.NewForbidden(call.GetResource().GroupResource(), pod.GetName(), fmt.Errorf(
				"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", key, corev1.LabelHostname))
		}
	}
	return nil
}
