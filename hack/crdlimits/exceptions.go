package main

import "slices"

// tables returns the amendments of each kind.
func tables() map[string][]amendment {
	return map[string][]amendment{
		"WebhookPolicy":                 webhookPolicyTable(),
		"WebhookPolicyException":        exceptionTable(),
		"ClusterWebhookPolicyException": exceptionTable(),
	}
}

// exceptionTable limits the label selectors of exceptions. There can be 16 of them, too many
// for rules about their keys in the CEL budget of the API server, so patterns check them.
func exceptionTable() []amendment {
	const at = "spec.match[].objectSelector"
	return slices.Concat(selector(at), []amendment{{at: at + ".matchExpressions[].key", pattern: labelKey}})
}
