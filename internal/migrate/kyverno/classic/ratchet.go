package classic

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// mayRatchet reports whether Kyverno lets an UPDATE pass because the stored object fails a
// rule. It evaluates the rule on that object for a user that matches nothing, and it cannot
// evaluate preconditions then.
func (v *ruleConverter) mayRatchet() bool {
	c := v.rule.Validate
	if c.AllowExistingViolations != nil && !*c.AllowExistingViolations || v.rule.Preconditions != nil {
		return false
	}
	blocks, all := v.rule.Match.filters()
	forUsers := func(f filter) bool { return len(f.Subjects)+len(f.Roles)+len(f.ClusterRoles) > 0 }
	if !slices.ContainsFunc(blocks, forUsers) {
		return true
	}
	if !all && slices.ContainsFunc(blocks, func(f filter) bool { return !forUsers(f) }) && v.out.enforces(v.policy) {
		v.notes = append(
			v.notes,
			"an UPDATE is denied also if the stored object fails the rule, because the rule matches some users only",
		)
	}
	return false
}

// limitRatchet lets an UPDATE of an object that fails already pass only if Kyverno does.
// Kyverno evaluates the whole rule on the stored object as if it were created. So the rule
// has to match the stored object too, and a rule for other operations, or one that reads
// the operation or the stored object, never passes for this reason.
func (c *convertedRule) limitRatchet(p *clusterPolicy) {
	if c.ratchet = c.ratchet && c.enforces(p) && c.matchesCreate(); !c.ratchet {
		return
	}
	if c.uses("request.operation") || c.uses("oldObject") {
		c.ratchet = false
		c.notes = append(
			c.notes,
			"an UPDATE is denied also if the stored object fails the rule, because the rule reads the operation or "+
				"the stored object",
		)
		return
	}
	c.notes = append(c.notes, conversion.NoteRatchet)
	var conditions []ce.Expression
	for _, m := range c.conditions {
		if readsObject(m.Expression) {
			conditions = append(conditions, ce.Raw(m.Expression, ce.Conditional))
		}
	}
	for i := range c.validations {
		v := &c.validations[i]
		v.Expression = ce.Or(ce.Not(ce.And(conditions...)), ce.Raw(v.Expression, ce.Conditional)).String()
	}
}

func (c *convertedRule) matchesCreate() bool {
	return slices.ContainsFunc(c.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.Operations, admissionregistrationv1.Create) ||
			slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
	})
}

// readsObject reports whether the result of an expression can differ for two objects of one
// request.
func readsObject(expression string) bool {
	text := strings.ReplaceAll(expression, "namespaceObject", "")
	return strings.Contains(text, "object") || strings.Contains(text, "variables.")
}
