// Package podtolerationrestriction sets default tolerations for the Pods of a namespace,
// and restricts their tolerations.
package podtolerationrestriction

import (
	"context"
	stdjson "encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
	"github.com/ostiary/ostiary/internal/plugins/podresources"
	"github.com/ostiary/ostiary/internal/plugins/tolerations"
)

// Annotations of a namespace.
const (
	annotationDefault   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	annotationWhitelist = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// Config is the native configuration, of kind Configuration in
// podtolerationrestriction.admission.k8s.io/v1alpha1.
type Config struct {
	define.Typed `json:",inline"`
	// default contains the tolerations of Pods in namespaces without the annotation
	// scheduler.alpha.kubernetes.io/defaultTolerations. Default: none.
	Default []corev1.Toleration `json:"default,omitempty"`
	// whitelist contains the permitted tolerations of Pods in namespaces without the
	// annotation scheduler.alpha.kubernetes.io/tolerationsWhitelist. Default: any.
	Whitelist []corev1.Toleration `json:"whitelist,omitempty"`
}

// Plugin adds tolerations to Pods and checks the result.
type Plugin struct{ config Config }

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginPodTolerationRestriction, func(c Config, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		errs := c.Check("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration", at)
		errs = append(errs, tolerations.Check(c.Default, at.Child("default"))...)
		errs = append(errs, tolerations.Check(c.Whitelist, at.Child("whitelist"))...)
		return &Plugin{config: c}, errs
	})
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return define.Pods(define.Writes()...)
}

// Admit implements pluginapi.Mutator.
func (p *Plugin) Admit(ctx context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	pod, err := call.RequireObject()
	if err != nil {
		return nil, err
	}
	list, err := tolerations.OfPod(pod)
	if err != nil {
		return nil, err
	}
	extra, err := p.extra(ctx, call)
	if err != nil {
		return nil, err
	}
	if len(extra) > 0 {
		list = tolerations.Merge(list, tolerations.New(extra...))
	}
	if err := p.check(ctx, call, list); err != nil {
		return nil, err
	}
	return tolerations.PodWith(pod, list)
}

// Validate implements pluginapi.Validator.
func (p *Plugin) Validate(ctx context.Context, call *pluginapi.Call) error {
	pod, err := call.RequireObject()
	if err != nil {
		return err
	}
	list, err := tolerations.OfPod(pod)
	if err != nil {
		return err
	}
	return p.check(ctx, call, list)
}

// extra returns the tolerations to add: those of the namespace for a new Pod, and one for
// memory pressure if the Pod requests resources.
func (p *Plugin) extra(ctx context.Context, call *pluginapi.Call) ([]corev1.Toleration, error) {
	var extra []corev1.Toleration
	if call.GetOperation() == admission.Create {
		of, annotated, err := annotated(ctx, call, annotationDefault)
		if err != nil {
			return nil, err
		}
		if extra = of; !annotated {
			extra = append(extra, p.config.Default...)
		}
	}
	pod, err := pluginapi.Typed[corev1.Pod](call, call.Object())
	if err != nil {
		return nil, err
	}
	if !podresources.BestEffort(pod) {
		extra = append(extra, corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return extra, nil
}

func (p *Plugin) check(ctx context.Context, call *pluginapi.Call, list []tolerations.Toleration) error {
	if len(list) == 0 {
		return nil
	}
	scope := "namespace"
	allowed, found, err := annotated(ctx, call, annotationWhitelist)
	if err != nil {
		return err
	}
	if !found {
		allowed, scope = p.config.Whitelist, "cluster"
	}
	if len(allowed) > 0 && !tolerations.AllCovered(list, allowed) {
		return call.Forbid("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope)
	}
	return nil
}

// annotated returns the tolerations in an annotation of the request's namespace.
func annotated(ctx context.Context, call *pluginapi.Call, name string) (list []corev1.Toleration, found bool, err error) {
	ns, err := call.Namespace(ctx)
	if err != nil {
		return nil, false, err
	}
	text, found := ns.Annotations[name]
	if text == "" {
		return nil, found, nil
	}
	if err := stdjson.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, call.Forbid("the annotation %s of namespace %s is not a list of tolerations in JSON: %w", name, ns.Name, err)
	}
	return list, true, nil
}
