package verify

import (
	"encoding/json"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/kubernetes"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
)

// knownKinds has the kinds that evaluations know.
type knownKinds struct {
	builtin map[schema.GroupVersionKind]bool
	input   []load.Object // CustomResourceDefinitions
}

func newDefinitions(objects []load.Object) (*knownKinds, error) {
	lists, err := kubernetes.Resources(policy.LatestEngine)
	if err != nil {
		return nil, err
	}
	d := &knownKinds{builtin: map[schema.GroupVersionKind]bool{}}
	for gv, resources := range lists {
		for i := range resources {
			d.builtin[gv.WithKind(resources[i].Kind)] = true
		}
	}
	d.input = definitionsAmong(objects)
	return d, nil
}

func definitionsAmong(objects []load.Object) []load.Object {
	return slices.DeleteFunc(
		slices.Clone(objects),
		func(o load.Object) bool { return o.Kind != "CustomResourceDefinition" },
	)
}

// neededBy returns the definitions that the objects of an assertion need. A kind without one has
// the resource that its policies name, and any fields.
func (d *knownKinds) neededBy(a *assertion) ([]load.Object, error) {
	out := slices.Clone(d.input)
	for _, o := range []*load.Object{a.object, a.old} {
		if o == nil || d.builtin[o.GroupVersionKind()] ||
			definesKind(slices.Concat(a.objects, out), o.GroupVersionKind()) {
			continue
		}
		made, err := makeDefinition(o.GroupVersionKind(), a)
		if err != nil {
			return nil, err
		}
		out = append(out, *made)
	}
	return out, nil
}

func definesKind(objects []load.Object, kind schema.GroupVersionKind) bool {
	for _, o := range definitionsAmong(objects) {
		var d apiextensionsv1.CustomResourceDefinition
		if o.Read(&d) == nil && d.Spec.Group == kind.Group && d.Spec.Names.Kind == kind.Kind &&
			slices.ContainsFunc(
				d.Spec.Versions,
				func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == kind.Version },
			) {
			return true
		}
	}
	return false
}

// makeDefinition makes a definition of a kind.
func makeDefinition(kind schema.GroupVersionKind, a *assertion) (*load.Object, error) {
	plural, singular := meta.UnsafeGuessKindToResource(kind)
	name := plural.Resource
	if named := a.resources(kind.Group); len(named) == 1 {
		name = named[0]
	}
	raw, err := json.Marshal(&apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind:     kind.Kind,
				ListKind: kind.Kind + "List",
				Plural:   name,
				Singular: singular.Resource,
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type:                   "object",
						XPreserveUnknownFields: new(true),
					},
				},
			}},
		},
	})
	if err != nil {
		return nil, err
	}
	return load.FromJSON("definition of "+kind.Kind, raw)
}

// resources returns the resources of a group that the policies of an assertion name.
func (a *assertion) resources(group string) (names []string) {
	for _, o := range a.outputs {
		for _, r := range o.Policy().Spec.MatchConstraints.ResourceRules {
			for _, name := range namedResources(r, group) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

func namedResources(r admissionregistrationv1.NamedRuleWithOperations, group string) []string {
	if !slices.Contains(r.APIGroups, group) {
		return nil
	}
	return slices.DeleteFunc(
		slices.Clone(r.Resources),
		func(name string) bool { return strings.ContainsAny(name, "*/") },
	)
}
