package versionskew

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Resource is a kind of objects that every replica loads. Its changes are counted separately from
// those of other resources, because API servers can keep resources in different stores.
type Resource int

const (
	// Policies are the WebhookPolicies.
	Policies Resource = iota
	// Exceptions are the WebhookPolicyExceptions.
	Exceptions
	// ClusterExceptions are the ClusterWebhookPolicyExceptions.
	ClusterExceptions

	resources // the number of resources, so it stays last
)

// Resources returns all resources.
func Resources() []Resource {
	out := make([]Resource, resources)
	for i := range out {
		out[i] = Resource(i)
	}
	return out
}

// String returns the name of a resource, which is part of an annotation of Leases.
func (r Resource) String() string {
	return [resources]string{Policies: "policies", Exceptions: "exceptions", ClusterExceptions: "cluster-exceptions"}[r]
}

// Vector has, for each resource, the resource version up to which every change is loaded, or ""
// if none is. A cache receives the changes of one resource in their order, so one version stands
// for all objects of the resource. Versions of different resources are not comparable (KEP-5504).
type Vector [resources]string

// Reached reports whether a replica with these versions has loaded everything in want.
func (v Vector) Reached(want Vector) bool {
	for r, version := range want {
		if version != "" && !Reached(v[r], version) {
			return false
		}
	}
	return true
}

// With returns the vector with a version of a resource, unless it has a later one.
func (v Vector) With(r Resource, version string) Vector {
	if !Reached(v[r], version) {
		v[r] = version
	}
	return v
}

// Reached reports whether a replica that has loaded all changes of a resource up to version have
// has loaded version want. It is false for versions that cannot be compared.
func Reached(have, want string) bool {
	order, err := resourceversion.CompareResourceVersion(have, want)
	return err == nil && order >= 0
}
