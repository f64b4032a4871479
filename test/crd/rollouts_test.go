package crd

// rolloutWith is the field bindings with one rollout.
func rolloutWith(steps, final string) string {
	return bindingWith("rollout", "{steps: ["+steps+"], final: {"+final+"}}")
}

func acceptedActions() map[string]string {
	const step = "name: s, minDurationSeconds: 60"
	return map[string]string{
		"a rollout": rolloutWith("{"+step+", validationActions: [Audit]}, {name: t, minDurationSeconds: 31536000, maxViolations: 0, "+
			"validationActions: [Deny, Audit], namespaceSelector: {matchLabels: {example.com/tier: dev}}}", "validationActions: [Deny]"),
		"a rollout of mutations": "validations: null\n" + mutationWith(applyMutation) + "\n" +
			rolloutWith("{"+step+", mutationAction: Preview, validationActions: [Warn]}", "mutationAction: Apply"),
		"a preview": mutationWith(applyMutation) + "\nbindings: [{name: b, mutationAction: Preview, validationActions: [Warn]}]",
	}
}

func refusedActions() map[string]refusedCase {
	const (
		binding = "spec.bindings[0]."
		step    = "name: s, minDurationSeconds: 60, validationActions: "
	)
	return map[string]refusedCase{
		"a rollout beside validationActions": {
			"bindings: [{name: b, validationActions: [Deny], rollout: {steps: [{" + step + "[Audit]}], final: {validationActions: [Deny]}}}]",
			[]string{binding + "validationActions: Forbidden: remove validationActions: the steps of the rollout have them"},
		},
		"a rollout beside mutationAction": {
			mutationWith(applyMutation) + "\nbindings: [{name: b, mutationAction: Apply, rollout: {steps: [{" + step +
				"[Audit]}], final: {validationActions: [Deny]}}}]",
			[]string{binding + "mutationAction: Forbidden: remove mutationAction: the steps of the rollout have it"},
		},
		"a step that denies everywhere": {rolloutWith("{"+step+"[Deny]}", "validationActions: [Deny]"),
			[]string{binding + "rollout.steps[0].validationActions: Forbidden: remove Deny, or add a namespaceSelector: before the final " +
				"action, a step denies only in some namespaces"}},
		"a step without actions": {rolloutWith("{name: s, minDurationSeconds: 60}", "validationActions: [Deny]"),
			[]string{binding + "rollout.steps[0]: Required value: set validationActions or mutationAction"}},
		"a first step with a selector": {rolloutWith("{"+step+"[Audit], namespaceSelector: {}}", "validationActions: [Deny]"),
			[]string{binding + "rollout.steps: Forbidden: remove namespaceSelector from the first step: it applies wherever no later step does"}},
	}
}

func validatedActions() map[string]validatedCase {
	const (
		binding       = "spec.bindings[0]."
		needsAnalysis = "CEL would ask for each binding what the policy and its plugin do, which costs more than its budget"
		mutations     = "mutationAction: Forbidden: remove mutationAction: the policy has no mutations"
		validations   = "validationActions: Forbidden: remove validationActions: the policy has no validations, and only Warn beside " +
			"mutationAction Preview has an effect without them"
	)
	return map[string]validatedCase{
		"a preview without mutations": {bindingWith("mutationAction", "Preview"), needsAnalysis, []string{binding + mutations}},
		"a rollout of mutations without any": {
			rolloutWith("{name: s, minDurationSeconds: 60, mutationAction: Preview}", "mutationAction: Apply"), needsAnalysis,
			[]string{binding + "rollout.steps[0]." + mutations, binding + "rollout.final." + mutations},
		},
		"a rollout of validations without any": {
			"validations: null\n" + mutationWith(applyMutation) + "\n" +
				rolloutWith("{name: s, minDurationSeconds: 60, validationActions: [Audit]}", "validationActions: [Deny]"), needsAnalysis,
			[]string{binding + "rollout.steps[0]." + validations, binding + "rollout.final." + validations},
		},
	}
}
