// Package offline evaluates policies as Ostiary and an API server do, with objects from
// files instead of those of a cluster.
//
// Requests go through the webhooks that Ostiary would register: their rules, selectors and
// guards, in the order in which API servers call them. The API server's defaults and its
// conversion between versions are not reproduced.
package offline

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
)

// TestGroup is the API group of PolicyTests.
const TestGroup = "test.ostiary.dev"

// Input is what files contain, by its use.
type Input struct {
	Policies    []Policy
	Exceptions  []Exception
	Definitions []*apiextensionsv1.CustomResourceDefinition
	Namespaces  []*corev1.Namespace
	// Tests are the objects of TestGroup.
	Tests []load.Object
	// Objects are all others, and Namespaces too.
	Objects []load.Object
}

// Policy is a policy with its source.
type Policy struct {
	*v1alpha1.WebhookPolicy
	Source load.Object
	// Stored is a policy of a cluster.
	Stored bool
	// Optional says that an engine leaves the policy out if it is invalid.
	Optional bool
}

// Sort divides objects by their use. Names of policies are unique.
func Sort(objects []load.Object) (*Input, error) {
	in, problems := Divide(objects)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return in, nil
}

// Divide is Sort without those objects that have a problem.
func Divide(objects []load.Object) (in *Input, problems []error) {
	in = &Input{}
	seen := map[string]load.Object{}
	for i := range objects {
		var err error
		o := objects[i]
		gvk := o.GroupVersionKind()
		switch gvk.Group {
		case v1alpha1.GroupName:
			if strings.HasSuffix(gvk.Kind, exceptionSuffix) {
				err = in.addException(o)
				break
			}
			err = in.addPolicy(o, seen)
		case TestGroup:
			in.Tests = append(in.Tests, o)
		default:
			err = in.addObject(o, gvk)
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	return in, problems
}

func (in *Input) addPolicy(o load.Object, seen map[string]load.Object) error {
	if gvk := o.GroupVersionKind(); gvk != v1alpha1.GroupVersion.WithKind("WebhookPolicy") {
		return o.Errorf("kind", "%s has no kind %s in version %s: write kind: WebhookPolicy and apiVersion: %s", v1alpha1.GroupName, gvk.Kind, gvk.Version, v1alpha1.GroupVersion)
	}
	p := &v1alpha1.WebhookPolicy{}
	unknown, err := o.DecodeKnown(p)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range unknown {
		errs = append(errs, o.Errorf(name, "WebhookPolicy has no such field: %s", cmp.Or(elsewhere(name), "correct or remove it")))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if p.Name == "" {
		return o.Errorf("metadata.name", "the policy has no name: add it")
	}
	if other, ok := seen[p.Name]; ok {
		return o.Errorf("metadata.name", "the policy %q is also at %s: remove one of them", p.Name, other.At("metadata.name"))
	}
	seen[p.Name] = o
	if p.UID == "" {
		p.UID = types.UID(p.Name)
	}
	in.Policies = append(in.Policies, Policy{WebhookPolicy: p, Source: o})
	return nil
}

// elsewhere says where a field of native policies or bindings is in a WebhookPolicy; "" if it
// is none.
func elsewhere(name string) string {
	switch name {
	case "spec.validationActions", "spec.paramRef", "spec.matchResources":
		field := strings.TrimPrefix(name, "spec.")
		return fmt.Sprintf("it belongs to a binding, move it to spec.bindings[0].%s", field)
	case "spec.policyName":
		return "bindings are a part of the policy, move the others to spec.bindings"
	}
	return ""
}

func (in *Input) addObject(o load.Object, gvk schema.GroupVersionKind) error {
	switch {
	case gvk.Group == apiextensionsv1.GroupName && gvk.Kind == "CustomResourceDefinition":
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if gvk.Version != "v1" {
			return o.Errorf("apiVersion", "write apiVersion: %s", apiextensionsv1.SchemeGroupVersion)
		}
		if err := o.Decode(definition); err != nil {
			return err
		}
		if err := checkDefinition(definition); err != nil {
			return o.Errorf("", "%v", err)
		}
		in.Definitions = append(in.Definitions, definition)
	case gvk == corev1.SchemeGroupVersion.WithKind("Namespace"):
		namespace := &corev1.Namespace{}
		if err := o.Decode(namespace); err != nil {
			return err
		}
		in.Namespaces = append(in.Namespaces, namespaceOf(namespace))
	}
	in.Objects = append(in.Objects, o)
	return nil
}

// namespaceOf returns a namespace with the label that the API server adds.
func namespaceOf(n *corev1.Namespace) *corev1.Namespace {
	out := n.DeepCopy()
	metav1.SetMetaDataLabel(&out.ObjectMeta, corev1.LabelMetadataName, n.Name)
	return out
}

func checkDefinition(d *apiextensionsv1.CustomResourceDefinition) error {
	if d.Spec.Group == "" || d.Spec.Names.Plural == "" || d.Spec.Names.Kind == "" {
		return fmt.Errorf("the CustomResourceDefinition %s needs spec.group, spec.names.plural and spec.names.kind", d.Name)
	}
	return nil
}

// resourcesOf returns the resources of a definition.
func resourcesOf(d *apiextensionsv1.CustomResourceDefinition, add func(schema.GroupVersion, metav1.APIResource)) error {
	if err := checkDefinition(d); err != nil {
		return err
	}
	all := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
		namespaced := d.Spec.Scope == apiextensionsv1.NamespaceScoped
		add(gv, metav1.APIResource{Name: d.Spec.Names.Plural, SingularName: d.Spec.Names.Singular, ShortNames: d.Spec.Names.ShortNames,
			Kind: d.Spec.Names.Kind, Namespaced: namespaced, Verbs: all})
		if v.Subresources != nil && v.Subresources.Status != nil {
			add(gv, metav1.APIResource{Name: d.Spec.Names.Plural + "/status", Kind: d.Spec.Names.Kind, Namespaced: namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			add(gv, metav1.APIResource{Name: d.Spec.Names.Plural + "/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Namespaced: namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	return nil
}
