// Package extendedresourcetoleration adds tolerations to Pods that request extended
// resources, such as GPUs, for nodes with taints of these names.
package extendedresourcetoleration

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
	"github.com/ostiary/ostiary/internal/plugins/podresources"
	"github.com/ostiary/ostiary/internal/plugins/tolerations"
)

// Plugin adds a toleration for each extended resource that a Pod requests.
type Plugin struct{}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginExtendedResourceToleration, func(define.None, *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return Plugin{}, nil
	})
}

// Rules implements pluginapi.Plugin.
func (Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return define.Pods(define.Writes()...)
}

// Admit implements pluginapi.Mutator.
func (Plugin) Admit(_ context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	pod, err := call.RequireObject()
	if err != nil {
		return nil, err
	}
	resources := requestedResources(pod)
	if len(resources) == 0 {
		return pod, nil
	}
	list, err := tolerations.OfPod(pod)
	if err != nil {
		return nil, err
	}
	for _, resource := range sets.List(resources) {
		list = withToleration(list, corev1.Toleration{Key: resource, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return tolerations.PodWith(pod, list)
}

// withToleration replaces the tolerations that differ only in their duration, or appends one.
func withToleration(list []tolerations.Toleration, wanted corev1.Toleration) []tolerations.Toleration {
	found := false
	for i := range list {
		t := &list[i].Toleration
		if t.Key != wanted.Key || t.Operator != wanted.Operator || t.Value != wanted.Value || t.Effect != wanted.Effect {
			continue
		}
		found = true
		if !equality.Semantic.DeepEqual(*t, wanted) {
			list[i] = tolerations.New(wanted)[0]
		}
	}
	if !found {
		list = append(list, tolerations.New(wanted)...)
	}
	return list
}

// requestedResources returns the extended resources that the containers of a Pod request.
func requestedResources(pod *unstructured.Unstructured) sets.Set[string] {
	out := sets.New[string]()
	spec, _ := pod.Object["spec"].(map[string]any)
	for _, field := range []string{"containers", "initContainers"} {
		list, _ := spec[field].([]any)
		for _, item := range list {
			container, _ := item.(map[string]any)
			requests, _, _ := unstructured.NestedFieldNoCopy(container, "resources", "requests") // the API server has checked its type
			names, _ := requests.(map[string]any)
			for name := range names {
				if podresources.Extended(name) {
					out.Insert(name)
				}
			}
		}
	}
	return out
}
