package rehearsal

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/typecheck"
)

// inventedObjects returns objects of a custom kind: one with the required fields alone, and one
// with each optional struct empty. It returns none if the schema has rules that could reject them.
func inventedObjects(d *typecheck.Document, kind schema.GroupVersionKind) []probe {
	if d == nil || !d.Has(kind) {
		return nil
	}
	var out []probe
	for _, sparse := range []bool{false, true} {
		object, ok := d.Example(kind, sparse)
		if !ok {
			return out
		}
		object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
		object["metadata"] = map[string]any{"name": "probe", "uid": uid, "creationTimestamp": created}
		out = append(out, probe{object: object, invented: true})
	}
	return out
}
