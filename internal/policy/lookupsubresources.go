package policy

import "slices"

// isAnotherObject reports whether the object of requests for a subresource is not that of the resource but,
// for example, the options of a command in a Pod. A policy about them can look up the Pod.
func isAnotherObject(subresource string) bool {
	return slices.Contains([]string{
		"attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "scale", "token",
	}, subresource)
}
