package celpolicies

import (
	"regexp"
	"slices"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// readsAbsent matches what differs between null and an object without fields.
var readsAbsent = regexp.MustCompile(
	`\b(?:oldObject|object)\s*[!=]=\s*null\b|\bnull\s*[!=]=\s*(?:oldObject|object)\b|\bhas\(\s*(?:oldObject|object)\.\w+\s*\)`,
)

// absent reports expressions that can read an object that a request does not have. Kyverno's
// engine has an empty object for it, so that its comparison with null is false.
func (b *builder) absent() {
	if slices.ContainsFunc(conversion.Expressions(&b.policy.Spec), readsAbsent.MatchString) {
		b.change("spec", "oldObject is null for CREATE, and object for DELETE, as in API servers: Kyverno has an empty object")
	}
}
