package conversion

import (
	"fmt"
	"slices"
	"strings"
)

// maxShown bounds what a report shows of an expression, in bytes.
const maxShown = 160

// ExpressionAt returns the expression of a policy at a field, on one line and shortened.
func (o *Output) ExpressionAt(field string) string {
	s := &o.Policy().Spec
	found := ""
	for i := range s.Variables {
		if field == fmt.Sprintf("spec.variables[%d].expression", i) {
			found = s.Variables[i].Expression
		}
	}
	for i := range s.MatchConditions {
		if field == fmt.Sprintf("spec.matchConditions[%d].expression", i) {
			found = s.MatchConditions[i].Expression
		}
	}
	for i := range s.Validations {
		if field == fmt.Sprintf("spec.validations[%d].expression", i) {
			found = s.Validations[i].Expression
		}
	}
	for i, m := range s.Mutations {
		switch here := fmt.Sprintf("spec.mutations[%d]", i); {
		case m.ApplyConfiguration != nil && strings.HasPrefix(field, here):
			found = m.ApplyConfiguration.Expression
		case m.JSONPatch != nil && strings.HasPrefix(field, here):
			found = m.JSONPatch.Expression
		}
	}
	found = strings.Join(strings.Fields(found), " ")
	if len(found) > maxShown {
		return strings.ToValidUTF8(found[:maxShown], "") + "..."
	}
	return found
}

// RuleAt returns the rule of the source that a field of an output comes from; empty if it is not
// known.
func (c *Conversion) RuleAt(o *Output, field string) string {
	var rules []string
	for _, row := range c.Rows {
		if row.Output != o {
			continue
		}
		rules = append(rules, row.Rule)
		for i, v := range o.Policy().Spec.Validations {
			if field == fmt.Sprintf("spec.validations[%d].expression", i) && slices.Contains(row.Validations, v.Name) {
				return row.Rule
			}
		}
	}
	if len(rules) == 1 {
		return rules[0]
	}
	return ""
}
