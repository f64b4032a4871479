// Package alwayspullimages makes the kubelet pull every image at each start, so that the
// registry checks the permission each time.
package alwayspullimages

import (
	"context"
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Config is the plugin's configuration. The native plugin has none.
type Config struct {
	// ephemeralContainers includes the subresource pods/ephemeralcontainers, through
	// which `kubectl debug` adds containers. The native plugin does not change these.
	// Default: false.
	EphemeralContainers bool `json:"ephemeralContainers,omitempty"`
}

// Plugin sets imagePullPolicy: Always.
type Plugin struct{ config Config }

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginAlwaysPullImages, func(c Config, _ *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return &Plugin{config: c}, nil
	})
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	rules := define.Pods(define.Writes()...)
	if p.config.EphemeralContainers {
		rules = append(rules, define.Rule("", "v1", []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, "pods/"+ephemeralContainers))
	}
	return rules
}

// ephemeralContainers is the name of the subresource.
const ephemeralContainers = "ephemeralcontainers"

// containerLists returns the fields of a Pod's spec that contain containers.
func containerLists() []string {
	return []string{"initContainers", "containers", "ephemeralContainers"}
}

// Admit implements pluginapi.Mutator.
func (p *Plugin) Admit(_ context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	pod := call.Object()
	if ignored, err := leavesImages(call); ignored || err != nil {
		return pod, err
	}
	if len(findings(call, pod)) == 0 {
		return pod, nil
	}
	pod = pod.DeepCopy()
	visit(call, pod, func(holder map[string]any, name string, _ *field.Path) { holder[name] = string(corev1.PullAlways) })
	return pod, nil
}

// Validate implements pluginapi.Validator. It denies what other webhooks changed after
// Admit.
func (p *Plugin) Validate(_ context.Context, call *pluginapi.Call) error {
	if ignored, err := leavesImages(call); ignored || err != nil {
		return err
	}
	var refusals []error
	for _, finding := range findings(call, call.Object()) {
		refusals = append(refusals, admission.NewForbidden(call, finding))
	}
	return errors.Join(refusals...)
}

// findings returns the pull policies that are not Always.
func findings(call *pluginapi.Call, pod *unstructured.Unstructured) []*field.Error {
	var out []*field.Error
	visit(call, pod, func(holder map[string]any, name string, at *field.Path) {
		value, _ := holder[name].(string) // empty if there is none
		if value != string(corev1.PullAlways) {
			out = append(out, field.NotSupported(at, corev1.PullPolicy(value), []string{string(corev1.PullAlways)}))
		}
	})
	return out
}

// visit calls found for each pull policy that the request can set, with the object that
// holds it, its name there, and its path.
func visit(call *pluginapi.Call, pod *unstructured.Unstructured, found func(holder map[string]any, name string, at *field.Path)) {
	spec, _ := pod.Object["spec"].(map[string]any)
	if call.GetSubresource() == ephemeralContainers {
		visitAdded(call, spec, found)
		return
	}
	for _, list := range containerLists() {
		each(spec, list, func(c map[string]any, at *field.Path) { found(c, "imagePullPolicy", at.Child("imagePullPolicy")) })
	}
	each(spec, "volumes", func(v map[string]any, at *field.Path) {
		if image, ok := v["image"].(map[string]any); ok {
			found(image, "pullPolicy", at.Child("image", "pullPolicy"))
		}
	})
}

// visitAdded visits the ephemeral containers that the request adds. It cannot change
// other containers, which may be older than the policy.
func visitAdded(call *pluginapi.Call, spec map[string]any, found func(map[string]any, string, *field.Path)) {
	existing := sets.New[string]()
	if old := call.OldObject(); old != nil {
		before, _ := old.Object["spec"].(map[string]any)
		each(before, "ephemeralContainers", func(c map[string]any, _ *field.Path) { existing.Insert(nameOf(c)) })
	}
	each(spec, "ephemeralContainers", func(c map[string]any, at *field.Path) {
		if !existing.Has(nameOf(c)) {
			found(c, "imagePullPolicy", at.Child("imagePullPolicy"))
		}
	})
}

func nameOf(container map[string]any) string {
	name, _ := container["name"].(string)
	return name
}

func each(spec map[string]any, list string, found func(map[string]any, *field.Path)) {
	items, _ := spec[list].([]any)
	for i, item := range items {
		if object, ok := item.(map[string]any); ok {
			found(object, field.NewPath("spec", list).Index(i))
		}
	}
}

// leavesImages reports whether a request is an update without a new image.
func leavesImages(call *pluginapi.Call) (bool, error) {
	pod, err := call.RequireObject()
	if err != nil || call.GetOperation() != admission.Update {
		return false, err
	}
	if call.OldObject() == nil {
		return false, errors.New("the request has no oldObject")
	}
	before := images(call.OldObject())
	return before.IsSuperset(images(pod)), nil
}

func images(pod *unstructured.Unstructured) sets.Set[string] {
	out := sets.New[string]()
	spec, _ := pod.Object["spec"].(map[string]any)
	for _, list := range containerLists() {
		each(spec, list, func(c map[string]any, _ *field.Path) {
			image, _ := c["image"].(string)
			out.Insert(image)
		})
	}
	return out
}
