package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const (
	// minChanges and maxInterval are the number of changes, and their mean interval,
	// from which a configuration counts as one that clients change against each other.
	minChanges  = 100
	maxInterval = time.Minute
)

// managers checks who writes each configuration.
func (c *checker) managers() {
	for i := range c.Validating {
		c.managersOf(kindValidating, &c.Validating[i].ObjectMeta)
	}
	for i := range c.Mutating {
		c.managersOf(kindMutating, &c.Mutating[i].ObjectMeta)
	}
}

func (c *checker) managersOf(kind string, meta *metav1.ObjectMeta) {
	o := Object{Kind: kind, Name: meta.Name}
	names, paths := sharedFields(meta.ManagedFields)
	if len(names) > 0 {
		c.report(Warning, "conflicting-managers", o, "metadata.managedFields",
			fmt.Sprintf("field managers %s own the same fields: %s; a change by one is reverted by, or conflicts with, the others", output.Some(names), output.Some(paths)),
			"let one client manage these fields, and remove them from the manifest of the others")
	}
	age := c.now.Sub(meta.CreationTimestamp.Time)
	if !meta.CreationTimestamp.IsZero() && meta.Generation >= minChanges && age < time.Duration(meta.Generation)*maxInterval {
		c.report(Warning, "changed-often", o, "metadata.generation",
			fmt.Sprintf("it was changed %d times in %s, last by %s: probably two clients change it against each other, and API servers compile it again each time",
				meta.Generation, age.Round(time.Minute), output.Some(managerNames(meta.ManagedFields))),
			"find the two clients in the audit log, and stop one of them from managing it")
	}
}

func managerNames(entries []metav1.ManagedFieldsEntry) []string {
	names := map[string]bool{}
	for _, e := range entries {
		names[fmt.Sprintf("%q", e.Manager)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// sharedFields returns the managers that own the same field of a webhook, and these
// fields, sorted.
func sharedFields(entries []metav1.ManagedFieldsEntry) (managers, paths []string) {
	owners, fields := map[string]bool{}, map[string]bool{}
	for i, a := range entries {
		for _, b := range entries[i+1:] {
			if a.Manager == b.Manager {
				continue // an Apply and an Update of one client
			}
			for path := range specOf(a).Intersection(specOf(b)).Leaves().All() {
				owners[fmt.Sprintf("%q", a.Manager)], owners[fmt.Sprintf("%q", b.Manager)] = true, true
				fields[path.String()[1:]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(owners)), slices.Sorted(maps.Keys(fields))
}

// specOf returns the fields below webhooks that an entry owns, without names and the
// items of the list, which every owner of a field has.
func specOf(e metav1.ManagedFieldsEntry) *fieldpath.Set {
	out, all := fieldpath.NewSet(), fieldpath.NewSet()
	if e.FieldsV1 == nil || e.Subresource != "" || all.FromJSON(e.FieldsV1.GetRawReader()) != nil {
		return out
	}
	for path := range all.Leaves().All() {
		if isSetting(path) {
			out.Insert(path.Copy())
		}
	}
	return out
}

func isSetting(path fieldpath.Path) bool {
	if len(path) < 3 || path[0].FieldName == nil || *path[0].FieldName != "webhooks" {
		return false
	}
	last := path[len(path)-1]
	return last.FieldName != nil && (len(path) > 3 || *last.FieldName != "name")
}
