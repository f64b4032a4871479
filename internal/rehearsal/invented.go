package rehearsal

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/typecheck"
)

// inventedObjects returns objects of a custom kind that an API server accepts: one with the
// required fields alone, and one with each optional struct empty.
func inventedObjects(ctx context.Context, d *typecheck.Document, kind schema.GroupVersionKind) (out []probe) {
	if d == nil || !d.Has(kind) {
		return nil
	}
	for _, object := range d.Examples(ctx, kind) {
		object["metadata"] = map[string]any{"name": "probe", "uid": uid, "creationTimestamp": created}
		out = append(out, probe{object: object, invented: true})
	}
	return out
}
