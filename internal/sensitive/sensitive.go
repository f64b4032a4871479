// Package sensitive lists the resources whose objects hold credentials. Their values reach only the client of a request
// and the audit log of the API server, whatever an installation permits for other objects.
package sensitive

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pattern is the RE2 pattern of an entry: "resource", "resource.group", "*.group" for all resources of a group, each
// alone or with "/subresource".
const Pattern = `([a-z]([-a-z0-9]*[a-z0-9])?|\*(\.` + label + `)+)(\.` + label + `)*(/[a-z]([-a-z0-9]*[a-z0-9])?)?`

const label = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`

// anyResource is the resource of an entry for a group.
const anyResource = "*"

// Defaults returns the entries that every set contains. The objects of serviceaccounts/token are TokenRequests.
// CertificateSigningRequests are not sensitive: they hold public keys.
func Defaults() []string {
	return []string{"secrets", "serviceaccounts/token", "tokenreviews.authentication.k8s.io"}
}

// Resources is a set of resources and subresources. It is immutable. The zero value contains the defaults.
type Resources struct{ additional []entry }

type entry struct {
	schema.GroupResource
	subresource string // "" is the resource with all of its subresources
}

// New returns the set of the defaults and of additional entries. The error names the first invalid entry.
func New(additional ...string) (Resources, error) {
	var out Resources
	valid := regexp.MustCompile(`^(` + Pattern + `)$`)
	for _, text := range additional {
		if !valid.MatchString(text) {
			return Resources{}, fmt.Errorf(`%q is no resource: write resource, resource.group or *.group, each alone or with /subresource`, text)
		}
		out.additional = append(out.additional, entryOf(text))
	}
	return out, nil
}

func entryOf(text string) entry {
	resource, subresource, _ := strings.Cut(text, "/")
	return entry{schema.ParseGroupResource(resource), subresource}
}

// Contains reports whether objects of a resource, or of one of its subresources, are sensitive. The subresources of a
// sensitive resource are.
func (r Resources) Contains(resource schema.GroupResource, subresource string) bool {
	covers := func(e entry) bool {
		return e.Group == resource.Group && (e.Resource == resource.Resource || e.Resource == anyResource) &&
			(e.subresource == "" || e.subresource == subresource)
	}
	return slices.ContainsFunc(Defaults(), func(text string) bool { return covers(entryOf(text)) }) || slices.ContainsFunc(r.additional, covers)
}
