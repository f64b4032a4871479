// Package podnodeselector limits the Pods of a namespace to some nodes.
package podnodeselector

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

const (
	// annotation of a namespace with its node selector.
	annotation = "scheduler.alpha.kubernetes.io/node-selector"
	// clusterDefault is the key of the node selector of namespaces without an annotation.
	clusterDefault = "clusterDefaultNodeSelector"
)

// Config is the configuration: the native file, or the content of
// podNodeSelectorPluginConfig.
type Config struct {
	// podNodeSelectorPluginConfig contains lists of labels: clusterDefaultNodeSelector is
	// the node selector of namespaces without the annotation, and the name of a namespace
	// limits what its Pods can select, including the selector of the namespace. Default:
	// no selector, no limits.
	PodNodeSelectorPluginConfig map[string]string `json:"podNodeSelectorPluginConfig,omitempty"`
}

// Plugin merges the node selector of a Pod's namespace into the Pod's own.
type Plugin struct {
	fallback labels.Set
	allowed  map[string]labels.Set // by namespace
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Definition{Name: v1alpha1.PluginPodNodeSelector, Config: reflect.TypeFor[Config](), New: newPlugin}
}

func newPlugin(config []byte, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
	selectors, at, errs := read(config, at)
	if len(errs) > 0 {
		return nil, errs
	}
	p := &Plugin{allowed: map[string]labels.Set{}}
	for _, name := range slices.Sorted(maps.Keys(selectors)) {
		set, err := labels.ConvertSelectorToLabelsMap(selectors[name])
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Child(name), selectors[name], "write labels as key=value, joined by commas: "+err.Error()))
		case name == clusterDefault:
			p.fallback = set
		default:
			p.allowed[name] = set
		}
	}
	return p, errs
}

// read accepts the native file, or the map in it.
func read(config []byte, at *field.Path) (map[string]string, *field.Path, field.ErrorList) {
	var fields map[string]stdjson.RawMessage
	if errs := define.Decode(config, &fields, at); len(errs) > 0 {
		return nil, at, errs
	}
	if _, whole := fields["podNodeSelectorPluginConfig"]; !whole {
		var selectors map[string]string
		errs := define.Decode(config, &selectors, at)
		return selectors, at, errs
	}
	var c Config
	errs := define.Decode(config, &c, at)
	return c.PodNodeSelectorPluginConfig, at.Child("podNodeSelectorPluginConfig"), errs
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return define.Pods(admissionregistrationv1.Create)
}

// Admit implements pluginapi.Mutator.
func (p *Plugin) Admit(ctx context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	pod, own, err := selectorOf(call)
	if err != nil {
		return nil, err
	}
	namespace, err := p.ofNamespace(ctx, call)
	if err != nil {
		return nil, err
	}
	merged := labels.Merge(namespace, own)
	if err := p.check(call, namespace, own, merged); err != nil || labels.Equals(own, merged) {
		return pod, err
	}
	pod = pod.DeepCopy()
	if err := unstructured.SetNestedStringMap(pod.Object, merged, "spec", "nodeSelector"); err != nil {
		return nil, fmt.Errorf("writing the node selector: %w", err)
	}
	return pod, nil
}

// Validate implements pluginapi.Validator.
func (p *Plugin) Validate(ctx context.Context, call *pluginapi.Call) error {
	_, own, err := selectorOf(call)
	if err != nil {
		return err
	}
	namespace, err := p.ofNamespace(ctx, call)
	if err != nil {
		return err
	}
	return p.check(call, namespace, own, own)
}

// check denies a Pod that contradicts the selector of its namespace, or selects more than
// its namespace permits.
func (p *Plugin) check(call *pluginapi.Call, namespace, own, merged labels.Set) error {
	if labels.Conflicts(namespace, own) {
		return forbidden(call, "pod node label selector conflicts with its namespace node label selector")
	}
	if !within(merged, p.allowed[call.GetNamespace()]) {
		return forbidden(call, "pod node label selector labels conflict with its namespace whitelist")
	}
	return nil
}

// forbidden returns the error of the native plugin: it contains "" as the name of a Pod
// without a name.
func forbidden(call *pluginapi.Call, text string) error {
	return apierrors.NewForbidden(call.GetResource().GroupResource(), call.Object().GetName(), fmt.Errorf("%s", text))
}

func (p *Plugin) ofNamespace(ctx context.Context, call *pluginapi.Call) (labels.Set, error) {
	ns, err := call.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	text, annotated := ns.Annotations[annotation]
	if !annotated {
		return p.fallback, nil
	}
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, call.Forbid("the annotation %s of namespace %s is not a list of labels, as key=value joined by commas: %w", annotation, ns.Name, err)
	}
	return set, nil
}

// selectorOf returns the Pod of a request and its node selector.
func selectorOf(call *pluginapi.Call) (*unstructured.Unstructured, labels.Set, error) {
	pod, err := call.RequireObject()
	if err != nil {
		return nil, nil, err
	}
	own, _, err := unstructured.NestedStringMap(pod.Object, "spec", "nodeSelector")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the node selector: %w", err)
	}
	return pod, own, nil
}

// within reports whether all labels are allowed; none means all.
func within(set, allowed labels.Set) bool {
	if len(allowed) == 0 {
		return true
	}
	for key, value := range set {
		if other, ok := allowed[key]; !ok || other != value {
			return false
		}
	}
	return true
}
