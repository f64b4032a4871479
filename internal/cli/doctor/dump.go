package doctor

import (
	"cmp"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// objects is a list of objects of one kind.
type objects interface {
	add(raw []byte) error
	know()
}

type objectsOf[T any] struct{ list *[]T }

func (o objectsOf[T]) add(raw []byte) error {
	var item T
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &item); err != nil {
		return err
	}
	*o.list = append(*o.list, item)
	return nil
}

func (o objectsOf[T]) know() {
	if *o.list == nil {
		*o.list = []T{}
	}
}

// Add adds an object in JSON to the dump. It ignores objects that no check reads.
func (d *Dump) Add(kind schema.GroupVersionKind, raw []byte) error {
	if o := d.objects(kind); o != nil {
		if err := o.add(raw); err != nil {
			return fmt.Errorf("reading a %s: %w", kind.Kind, err)
		}
	}
	return nil
}

// Know says that the dump has all objects of a kind, even if there is none.
func (d *Dump) Know(kind schema.GroupVersionKind) {
	if o := d.objects(kind); o != nil {
		o.know()
	}
}

// objects returns the list of a kind, nil if no check reads it.
func (d *Dump) objects(kind schema.GroupVersionKind) objects {
	switch kind {
	case admissionregistrationv1.SchemeGroupVersion.WithKind(kindValidating):
		return objectsOf[admissionregistrationv1.ValidatingWebhookConfiguration]{&d.Validating}
	case admissionregistrationv1.SchemeGroupVersion.WithKind(kindMutating):
		return objectsOf[admissionregistrationv1.MutatingWebhookConfiguration]{&d.Mutating}
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return objectsOf[corev1.Service]{&d.Services}
	case corev1.SchemeGroupVersion.WithKind("Namespace"):
		return objectsOf[corev1.Namespace]{&d.Namespaces}
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):
		return objectsOf[discoveryv1.EndpointSlice]{&d.EndpointSlices}
	case appsv1.SchemeGroupVersion.WithKind("Deployment"):
		return objectsOf[appsv1.Deployment]{&d.Deployments}
	case appsv1.SchemeGroupVersion.WithKind("StatefulSet"):
		return objectsOf[appsv1.StatefulSet]{&d.StatefulSets}
	case appsv1.SchemeGroupVersion.WithKind("DaemonSet"):
		return objectsOf[appsv1.DaemonSet]{&d.DaemonSets}
	case coordinationv1.SchemeGroupVersion.WithKind("Lease"):
		return objectsOf[coordinationv1.Lease]{&d.Leases}
	case apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"):
		return objectsOf[apiextensionsv1.CustomResourceDefinition]{&d.CustomResourceDefinitions}
	case v1alpha1.GroupVersion.WithKind("WebhookPolicy"):
		return objectsOf[v1alpha1.WebhookPolicy]{&d.Policies}
	}
	return nil
}

// Targets returns the Services that webhooks call, sorted.
func (d *Dump) Targets() []Target {
	var out []Target
	for _, w := range webhooksOf(d) {
		if t, ok := w.target(); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, compareTargets)
	return slices.Compact(out)
}

func compareTargets(a, b Target) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
}

// Backend is a Pod behind a Target.
type Backend struct {
	Pod  string
	Port int32
}

// Backends returns the ready Pods behind a Target, without those that are not Pods.
func (d *Dump) Backends(t Target) []Backend {
	var out []Backend
	c := checker{Dump: d}
	s := c.find(t)
	if s == nil {
		return nil
	}
	for _, p := range s.Spec.Ports {
		if p.Port != t.Port {
			continue
		}
		for _, e := range c.endpoints(t, p.Name) {
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && e.port != 0 {
				out = append(out, Backend{Pod: e.TargetRef.Name, Port: e.port})
			}
		}
	}
	return out
}
