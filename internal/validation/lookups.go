package validation

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// lookups warns about lookups that no expression reads, whose index takes memory.
func (w *warner) lookups(spec *v1alpha1.WebhookPolicySpec, at *field.Path) {
	for i := range spec.Lookups {
		name := spec.Lookups[i].Name
		read := regexp.MustCompile(`\b` + celsyntax.LookupsVarName + `\s*(\.|\[\s*["'])\??\s*` + regexp.QuoteMeta(name) + `\b`)
		isRead := false
		for _, text := range celsyntax.Expressions(spec) {
			isRead = isRead || read.MatchString(text)
		}
		if !isRead {
			w.warn(at.Child("lookups").Index(i).Child("name"), "no expression reads lookups.%s, and its index takes memory: remove it", name)
		}
	}
}
