package main

import "slices"

// rollouts limits the label selectors of steps. There can be 1,000 of them, too many for rules
// about their keys in the CEL budget of the API server, so patterns check them.
func rollouts() []amendment {
	const at = "spec.bindings[].rollout.steps[].namespaceSelector"
	return slices.Concat(selector(at), []amendment{{at: at + ".matchExpressions[].key", pattern: labelKey}})
}
