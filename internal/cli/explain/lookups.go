package explain

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/sensitive"
	"github.com/ostiary/ostiary/internal/truncate"
)

// maxFound is the maximum number of keys and of objects of a lookup that an explanation names.
const maxFound = 20

// LookupResult says what a lookup has found.
type LookupResult struct {
	Lookup string `json:"lookup"`
	// Resource is that of the stored objects.
	Resource string `json:"resource"`
	// Template is the path of the pod template, empty for the object itself.
	Template string `json:"template,omitempty"`
	// Keys are the first keys of the request; absent for a resource whose objects hold credentials.
	Keys []string `json:"keys,omitempty"`
	// Objects are the first objects, as "namespace/name", and Count is the number of all.
	Objects []string `json:"objects,omitempty"`
	Count   int      `json:"count"`
	Error   string   `json:"error,omitempty"`

	hidden bool // the keys
	total  int  // keys
}

func lookupResult(l policy.LookedUp) LookupResult {
	resource, keys := l.Definition.GroupVersionResource().GroupResource(), l.Query.Keys
	out := LookupResult{
		Lookup: l.Lookup, Resource: resource.String(), Template: l.Template,
		Count: len(l.Found), hidden: isSensitive(resource), total: len(keys),
	}
	if !out.hidden {
		for _, key := range keys[:min(len(keys), maxFound)] {
			out.Keys = append(out.Keys, truncate.String(key, maxValue))
		}
	}
	for _, v := range l.Found[:min(len(l.Found), maxFound)] {
		out.Objects = append(out.Objects, strings.TrimPrefix(v.Namespace+"/"+v.Name, "/"))
	}
	if l.Err != nil {
		out.Error = l.Err.Error()
	}
	return out
}

// isSensitive reports whether objects hold credentials.
func isSensitive(resource schema.GroupResource) bool {
	return sensitive.Resources{}.Contains(resource, "")
}

// hidesKeys reports whether a field has keys of objects that hold credentials.
func hidesKeys(spec *v1alpha1.WebhookPolicySpec, field string) bool {
	var i int
	if _, err := fmt.Sscanf(field, "spec.lookups[%d]", &i); err != nil || i < 0 || i >= len(spec.Lookups) {
		return false
	}
	return isSensitive(spec.Lookups[i].Resource.GroupResource())
}

// String describes the result on one line.
func (r LookupResult) String() string {
	name := r.Lookup
	if r.Template != "" {
		name += " of the Pod of " + r.Template
	}
	keys := fmt.Sprintf("%d keys, which are not shown", r.total)
	if !r.hidden {
		keys = "keys " + some(r.Keys, r.total)
	}
	if r.Error != "" {
		return fmt.Sprintf("%s: error: %s", name, r.Error)
	}
	return fmt.Sprintf("%s: %s, found in %s: %s", name, keys, r.Resource, some(r.Objects, r.Count))
}

// some returns the first of a number of texts.
func some(texts []string, total int) string {
	if total == 0 {
		return "none"
	}
	out := strings.Join(texts, ", ")
	if more := total - len(texts); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}
