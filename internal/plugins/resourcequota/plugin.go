// Package resourcequota denies requests that consume a limited resource without a quota
// in the namespace: the configuration limitedResources of the native plugin, with its
// code. The API server itself counts the consumption.
package resourcequota

import (
	"context"
	"math"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	api "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Plugin denies consumption that no quota covers.
type Plugin struct {
	limited    []api.LimitedResource
	evaluators map[schema.GroupResource]quota.Evaluator
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginResourceQuota, func(c Config, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		p := &Plugin{evaluators: map[schema.GroupResource]quota.Evaluator{}}
		for _, l := range c.LimitedResources {
			gr := schema.GroupResource{Group: l.APIGroup, Resource: l.Resource}
			p.evaluators[gr] = evaluatorOf(gr)
			p.limited = append(p.limited, api.LimitedResource(l))
		}
		return p, c.check(at)
	})
}

// Rules implements pluginapi.Plugin. The rules have the limited resources and all operations
// of the native plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	limited := p.limited
	if len(limited) == 0 { // the configuration is invalid
		limited = []api.LimitedResource{{Resource: pods}, {Resource: claims}, {Resource: services}}
	}
	var out []admissionregistrationv1.RuleWithOperations
	for _, l := range limited {
		operations, version := []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "*"
		if measured(schema.GroupResource{Group: l.APIGroup, Resource: l.Resource}) {
			operations, version = define.Writes(), "v1"
		}
		out = append(out, namespaced(define.Rule(l.APIGroup, version, operations, l.Resource)))
		if l.APIGroup == corev1.GroupName && l.Resource == pods {
			out = append(out, namespaced(define.Rule("", "v1", []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, pods+"/resize")))
		}
	}
	return out
}

func namespaced(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
	r.Scope = new(admissionregistrationv1.NamespacedScope)
	return r
}

func quotas() admissionregistrationv1.ParamKind {
	return admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ResourceQuota"}
}

// Needs returns the kinds that the plugin reads.
func (p *Plugin) Needs() []admissionregistrationv1.ParamKind {
	return []admissionregistrationv1.ParamKind{quotas()}
}

// Validate implements pluginapi.Validator.
func (p *Plugin) Validate(ctx context.Context, call *pluginapi.Call) error {
	evaluator := p.evaluators[call.Resource.GroupResource()]
	if evaluator == nil {
		return nil
	}
	a := attributes{Attributes: call}
	var err error
	if a.object, err = typed(call, call.Object()); err != nil {
		return err
	}
	if a.old, err = typed(call, call.OldObject()); err != nil {
		return err
	}
	if !evaluator.Handles(a) {
		return nil
	}
	if err := p.check(nil, a, evaluator); err == nil { // no limited consumption, as in most requests
		return nil
	}
	found, err := covering(ctx, call)
	if err != nil {
		return err
	}
	return p.check(found, a, evaluator)
}

// check denies consumption that no quota covers.
func (p *Plugin) check(found []corev1.ResourceQuota, a attributes, evaluator quota.Evaluator) error {
	_, err := resourcequota.CheckRequest(found, a, refusing{Evaluator: evaluator, attributes: a}, p.limited)
	return err
}

// covering returns the quotas of the namespace with unlimited amounts: the API server
// checks the amounts.
func covering(ctx context.Context, call *pluginapi.Call) ([]corev1.ResourceQuota, error) {
	found, err := call.List(ctx, quotas(), call.GetNamespace())
	if err != nil {
		return nil, err
	}
	out := make([]corev1.ResourceQuota, len(found))
	for i, u := range found {
		q, err := pluginapi.Typed[corev1.ResourceQuota](call, u)
		if err != nil {
			return nil, err
		}
		out[i] = *q
		out[i].Status = corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}}
		for name := range q.Status.Hard {
			out[i].Status.Hard[name] = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
			out[i].Status.Used[name] = resource.Quantity{}
		}
	}
	return out, nil
}

// typed returns an object for the evaluators: a Go value, or itself if only its count
// matters.
func typed(call *pluginapi.Call, object *unstructured.Unstructured) (runtime.Object, error) {
	if object == nil {
		return nil, nil
	}
	if object.GetNamespace() == "" { // the evaluator writes it
		object = object.DeepCopy()
		object.SetNamespace(call.GetNamespace())
	}
	if call.Resource.Group != corev1.GroupName {
		return object, nil
	}
	switch call.Resource.Resource {
	case pods:
		return asRuntime(pluginapi.Typed[corev1.Pod](call, object))
	case claims:
		return asRuntime(pluginapi.Typed[corev1.PersistentVolumeClaim](call, object))
	case services:
		return asRuntime(pluginapi.Typed[corev1.Service](call, object))
	}
	return object, nil
}

func asRuntime[T runtime.Object](object T, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return object, nil
}

// attributes holds the attributes of a call, with Go values as objects.
type attributes struct {
	admission.Attributes
	object, old runtime.Object
}

// GetObject implements admission.Attributes.
func (a attributes) GetObject() runtime.Object { return a.object }

// GetOldObject implements admission.Attributes.
func (a attributes) GetOldObject() runtime.Object { return a.old }
