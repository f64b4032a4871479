package doctor

import (
	"fmt"
	"slices"
)

// edge is a webhook that fails closed and is called for the Pods behind another Service.
type edge struct{ from, to Target }

// cycles finds pairs of operators whose webhooks block each other's Pods: if both are
// down, neither can start.
func (c *checker) cycles() {
	edges, targets := c.edges()
	for i, a := range targets {
		for _, b := range targets[i+1:] {
			first, second := edges[edge{a, b}], edges[edge{b, a}]
			if first == nil || second == nil {
				continue
			}
			c.about(first, Error, "blocks-each-other", "rules",
				fmt.Sprintf("it matches the Pods of webhook %s, which matches its own Pods: if both are down, neither can start again", second),
				fmt.Sprintf("exclude the namespace %q with namespaceSelector, or %q in the other one", b.Namespace, a.Namespace))
		}
	}
}

// edges returns the first webhook for each edge, and the Services that webhooks with
// failurePolicy Fail call for Pods.
func (c *checker) edges() (map[edge]*webhook, []Target) {
	var blocking []*webhook
	var targets []Target
	for _, w := range c.webhooks {
		if t, ok := w.target(); ok && w.failsClosed() && w.matchesPods() {
			blocking, targets = append(blocking, w), append(targets, t)
		}
	}
	slices.SortFunc(targets, compareTargets)
	targets = slices.Compact(targets)
	edges := map[edge]*webhook{}
	for _, w := range blocking {
		from, _ := w.target()
		for _, to := range targets {
			if e := (edge{from, to}); from.Namespace != to.Namespace && edges[e] == nil && len(c.blocked(w, c.podRequests(to))) > 0 {
				edges[e] = w
			}
		}
	}
	return edges, targets
}

// matchesPods reports whether a rule matches the creation of Pods.
func (w *webhook) matchesPods() bool {
	return w.rulesMatch(request{version: "v1", resource: "pods", kind: "Pod", namespace: "x", name: "x", operation: "CREATE"}.attributes())
}
