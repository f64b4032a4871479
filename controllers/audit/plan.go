package audit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wantedResource is a resource with the policies that are evaluated on its objects.
type wantedResource struct {
	kind       schema.GroupVersionKind
	namespaced bool
	targets    map[string]target // by policy
}

// forbidden returns what to do about a resource that may not be read.
func forbidden(gr schema.GroupResource) string {
	return fmt.Sprintf(`Ostiary may not list %s for the audit: create a ClusterRole with the label %s: "true" and the rule {apiGroups: [%q], resources: [%q], verbs: [list, watch]}`,
		gr, AggregationLabel, gr.Group, gr.Resource)
}
