package classic

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/kubernetes"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
	"github.com/ostiary/ostiary/internal/policy"
)

// selectedKind is a kind in a match, such as apps/v1/Deployment or Pod/exec. Each part may
// have wildcards.
type selectedKind struct{ group, version, kind, subresource string }

var versionPattern = regexp.MustCompile(`^(v\d((alpha|beta)\d)?|\*)$`)

// parseKind parses a kind: kind, version/kind, kind/subresource, version/kind/subresource,
// group/version/kind or group/version/kind/subresource; a dot may be before the
// subresource.
func parseKind(text string) (selectedKind, bool) {
	parts := strings.Split(text, "/")
	last := len(parts) - 1
	parts = append(parts[:last:last], strings.Split(parts[last], ".")...)
	isVersion := versionPattern.MatchString(parts[0])
	switch {
	case len(parts) == 1:
		return selectedKind{"*", "*", parts[0], ""}, parts[0] != ""
	case len(parts) == 2 && parts[0] == "*" && (parts[1] == "*" || strings.ToLower(parts[1]) == parts[1]):
		return selectedKind{"*", "*", "*", parts[1]}, true
	case len(parts) == 2 && isVersion:
		return selectedKind{"*", parts[0], parts[1], ""}, true
	case len(parts) == 2:
		return selectedKind{"*", "*", parts[0], parts[1]}, true
	case len(parts) == 3 && isVersion:
		return selectedKind{"*", parts[0], parts[1], parts[2]}, true
	case len(parts) == 3:
		return selectedKind{parts[0], parts[1], parts[2], ""}, true
	case len(parts) == 4:
		return selectedKind{parts[0], parts[1], parts[2], parts[3]}, true
	}
	return selectedKind{}, false
}

// servedKind is a kind that an API server serves.
type servedKind struct {
	schema.GroupVersionKind
	resource   string // with subresource
	namespaced bool
	custom     bool
}

// catalogue has the kinds of Kubernetes and of the CustomResourceDefinitions of the input.
type catalogue []servedKind

func newCatalogue(in *conversion.Input) (catalogue, error) {
	lists, err := kubernetes.Resources(policy.LatestEngine)
	if err != nil {
		return nil, err
	}
	c := fromLists(lists)
	for i := range in.All {
		o := &in.All[i]
		if o.Kind != "CustomResourceDefinition" {
			continue
		}
		var d struct {
			Spec struct {
				Group string `json:"group"`
				Scope string `json:"scope"`
				Names struct {
					Kind   string `json:"kind"`
					Plural string `json:"plural"`
				} `json:"names"`
				Versions []struct {
					Name string `json:"name"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := o.Read(&d); err != nil {
			return nil, err
		}
		for _, v := range d.Spec.Versions {
			kind := schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
			c = append(c, servedKind{
				GroupVersionKind: kind,
				resource:         d.Spec.Names.Plural,
				namespaced:       d.Spec.Scope == "Namespaced",
				custom:           true,
			})
		}
	}
	return c, nil
}

func fromLists(lists apiresources.Lists) catalogue {
	var c catalogue
	for gv, resources := range lists {
		for _, r := range resources {
			kind := schema.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: r.Kind}
			if strings.Contains(r.Name, "/") { // the kind of a subresource may be that of another group
				kind.Kind = parentOf(resources, r)
			}
			c = append(c, servedKind{GroupVersionKind: kind, resource: r.Name, namespaced: r.Namespaced})
		}
	}
	slices.SortFunc(c, func(a, b servedKind) int {
		return strings.Compare(a.Group+"/"+a.Version+"/"+a.resource, b.Group+"/"+b.Version+"/"+b.resource)
	})
	return c
}

func parentOf(resources []metav1.APIResource, r metav1.APIResource) string {
	name, _, _ := strings.Cut(r.Name, "/")
	for _, other := range resources {
		if other.Name == name {
			return other.Kind
		}
	}
	return r.Kind
}

// find returns the kinds that a selection names.
func (c catalogue) find(k selectedKind) (found []servedKind) {
	for _, s := range c {
		_, subresource, _ := strings.Cut(s.resource, "/")
		if scalar.MatchesWildcard(k.group, s.Group) && scalar.MatchesWildcard(k.version, s.Version) &&
			scalar.MatchesWildcard(k.kind, s.Kind) && scalar.MatchesWildcard(k.subresource, subresource) {
			found = append(found, s)
		}
	}
	return found
}

// guessKind returns the resource that a kind without a definition probably has.
func guessKind(k selectedKind) servedKind {
	kind := schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	name := plural.Resource
	if k.subresource != "" {
		name += "/" + k.subresource
	}
	return servedKind{GroupVersionKind: kind, resource: name, custom: true}
}
