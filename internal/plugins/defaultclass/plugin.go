// Package defaultclass sets the class of objects without one to that of their namespace,
// or to the default of the cluster: a StorageClass for claims, an IngressClass for
// Ingresses.
package defaultclass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// StorageConfig is the configuration of DefaultStorageClass. The native plugin has none.
type StorageConfig struct {
	// namespaceAnnotation is the annotation of a namespace that names the StorageClass
	// for claims in it. Default: admission.ostiary.dev/default-storage-class.
	NamespaceAnnotation string `json:"namespaceAnnotation,omitempty"`
	selectors           `json:",inline"`
}

// IngressConfig is the configuration of DefaultIngressClass. The native plugin has none.
type IngressConfig struct {
	// namespaceAnnotation is the annotation of a namespace that names the IngressClass
	// for Ingresses in it. Default: admission.ostiary.dev/default-ingress-class.
	NamespaceAnnotation string `json:"namespaceAnnotation,omitempty"`
	selectors           `json:",inline"`
}

// selectors is the part of the configuration that both plugins have.
type selectors struct {
	// namespaces sets the class for namespaces without the annotation: the first entry
	// whose selector matches. At most 100.
	Namespaces []ForNamespaces `json:"namespaces,omitempty"`
}

// ForNamespaces is the class for some namespaces.
type ForNamespaces struct {
	// namespaceSelector selects namespaces by their labels.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	// className is the name of the class.
	ClassName string `json:"className"`
}

const maxNamespaces = 100

// kind describes the objects of one of the two plugins.
type kind struct {
	class       admissionregistrationv1.ParamKind
	rule        admissionregistrationv1.RuleWithOperations
	field       string   // of the spec
	annotations []string // of the object, for its class before the field existed
	defaults    []string // annotations of a default class of the cluster
	ofNamespace string   // annotation
}

// Plugin sets the class of objects without one.
type Plugin struct {
	kind
	selected []selected
}

type selected struct {
	selector labels.Selector
	class    string
}

// StorageClasses is the plugin DefaultStorageClass.
func StorageClasses() define.Definition {
	return define.Plugin(v1alpha1.PluginDefaultStorageClass, func(c StorageConfig, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return newPlugin(c.selectors, at, kind{
			class:       admissionregistrationv1.ParamKind{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
			rule:        define.Rule("", "v1", []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "persistentvolumeclaims"),
			field:       "storageClassName",
			annotations: []string{"volume.beta.kubernetes.io/storage-class"},
			defaults:    []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"},
			ofNamespace: cmp.Or(c.NamespaceAnnotation, "admission.ostiary.dev/default-storage-class"),
		})
	})
}

// IngressClasses is the plugin DefaultIngressClass.
func IngressClasses() define.Definition {
	return define.Plugin(v1alpha1.PluginDefaultIngressClass, func(c IngressConfig, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		return newPlugin(c.selectors, at, kind{
			class:       admissionregistrationv1.ParamKind{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"},
			rule:        define.Rule("networking.k8s.io", "v1", []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "ingresses"),
			field:       "ingressClassName",
			annotations: []string{"kubernetes.io/ingress.class"},
			defaults:    []string{"ingressclass.kubernetes.io/is-default-class"},
			ofNamespace: cmp.Or(c.NamespaceAnnotation, "admission.ostiary.dev/default-ingress-class"),
		})
	})
}

func newPlugin(c selectors, at *field.Path, k kind) (pluginapi.Plugin, field.ErrorList) {
	p := &Plugin{kind: k}
	var errs field.ErrorList
	at = at.Child("namespaces")
	if n := len(c.Namespaces); n > maxNamespaces {
		errs = append(errs, field.TooMany(at, n, maxNamespaces))
	}
	for i, n := range c.Namespaces {
		s, more := n.parse(at.Index(i))
		errs = append(errs, more...)
		p.selected = append(p.selected, s)
	}
	return p, errs
}

func (n ForNamespaces) parse(at *field.Path) (selected, field.ErrorList) {
	var errs field.ErrorList
	if n.ClassName == "" {
		errs = append(errs, field.Required(at.Child("className"), "name the class"))
	}
	if n.NamespaceSelector == nil {
		return selected{}, append(errs, field.Required(at.Child("namespaceSelector"), "select namespaces; {} selects all"))
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(n.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
	selector, err := metav1.LabelSelectorAsSelector(n.NamespaceSelector)
	if err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(at.Child("namespaceSelector"), field.OmitValueType{}, err.Error()))
	}
	return selected{selector: selector, class: n.ClassName}, errs
}

// Rules implements pluginapi.Plugin.
func (p *Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{p.rule}
}

// Needs implements plugins.Needs.
func (p *Plugin) Needs() []admissionregistrationv1.ParamKind {
	return []admissionregistrationv1.ParamKind{p.class}
}

// Admit implements pluginapi.Mutator. The API server's own plugin runs before it and can
// have set the default class of the cluster, which the class of the namespace replaces.
func (p *Plugin) Admit(ctx context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	object, err := call.RequireObject()
	if err != nil {
		return nil, err
	}
	if p.named(object) {
		return object, nil
	}
	class, why, err := p.ofRequest(ctx, call)
	if err != nil {
		return nil, err
	}
	classes, err := call.List(ctx, p.class, "")
	if err != nil {
		return nil, err
	}
	_, has, _ := unstructured.NestedString(object.Object, "spec", p.field) // the API server has checked its type
	switch {
	case class != "" && !slices.ContainsFunc(classes, func(c *unstructured.Unstructured) bool { return c.GetName() == class }):
		return nil, call.Forbid("%s names the %s %q, which does not exist", why, p.class.Kind, class)
	case class == "" && has:
		return object, nil
	case class == "":
		if class = p.newest(classes); class == "" {
			return object, nil
		}
	}
	out := object.DeepCopy()
	if err := unstructured.SetNestedField(out.Object, class, "spec", p.field); err != nil {
		return nil, fmt.Errorf("setting the class: %w", err)
	}
	return out, nil
}

// named returns the class that the author of the object has named, or "". managedFields
// contain the fields of the author, but not those that plugins of the API server set.
// Without managedFields, every value counts as the author's.
func (p *Plugin) named(object *unstructured.Unstructured) bool {
	annotations := object.GetAnnotations()
	for _, name := range p.annotations {
		if _, ok := annotations[name]; ok {
			return true
		}
	}
	if _, has, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", p.field); !has {
		return false
	}
	managed := object.GetManagedFields()
	for _, entry := range managed {
		if entry.FieldsV1 != nil && p.writes(entry.FieldsV1.GetRawBytes()) {
			return true
		}
	}
	return len(managed) == 0
}

func (p *Plugin) writes(fields []byte) bool {
	var set map[string]any
	if err := json.Unmarshal(fields, &set); err != nil {
		return true
	}
	_, found, err := unstructured.NestedFieldNoCopy(set, "f:spec", "f:"+p.field)
	return found || err != nil
}

// ofRequest returns the class of the request's namespace, empty if it has none, and its
// source.
func (p *Plugin) ofRequest(ctx context.Context, call *pluginapi.Call) (class, why string, err error) {
	ns, err := call.Namespace(ctx)
	if err != nil {
		return "", "", err
	}
	if class := strings.TrimSpace(ns.Annotations[p.ofNamespace]); class != "" {
		return class, fmt.Sprintf("the annotation %s of namespace %s", p.ofNamespace, ns.Name), nil
	}
	for i, s := range p.selected {
		if s.selector.Matches(labels.Set(ns.Labels)) {
			return s.class, fmt.Sprintf("namespaces[%d] of the plugin's configuration", i), nil
		}
	}
	return "", "", nil
}

// newest returns the name of the default class of the cluster, empty if there is none: of
// several the newest, then the first by name.
func (p *Plugin) newest(classes []*unstructured.Unstructured) string {
	var newest *unstructured.Unstructured
	for _, c := range classes {
		annotations := c.GetAnnotations()
		if !slices.ContainsFunc(p.defaults, func(name string) bool { return annotations[name] == "true" }) {
			continue
		}
		if newest == nil || p.before(c, newest) {
			newest = c
		}
	}
	if newest == nil {
		return ""
	}
	return newest.GetName()
}

func (p *Plugin) before(a, b *unstructured.Unstructured) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !at.Equal(&bt) {
		return bt.Before(&at)
	}
	return a.GetName() < b.GetName()
}
