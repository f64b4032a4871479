package classic

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// operationSet are the operations for which a rule can have an effect.
type operationSet []admissionregistrationv1.OperationType

// namedOperations returns those of the operations that a block of match names, or all.
func (s operationSet) namedOperations(
	named []admissionregistrationv1.OperationType,
) []admissionregistrationv1.OperationType {
	if len(named) == 0 {
		return s
	}
	return slices.DeleteFunc(
		slices.Clone(named),
		func(o admissionregistrationv1.OperationType) bool { return !slices.Contains(s, o) },
	)
}

// operationsOf returns the operations for which a rule can have an effect, and the
// preconditions without those about operations.
func operationsOf(r *rule) (operationSet, *blocks) {
	all, rest := r.narrowedOperations()
	if !r.appliesToDelete() {
		all = slices.DeleteFunc(all, func(o admissionregistrationv1.OperationType) bool {
			return o == admissionregistrationv1.Delete
		})
	}
	return all, rest
}

// narrowedOperations returns the operations for which Kyverno evaluates more than the conditions about
// operations, and the preconditions without these.
func (r *rule) narrowedOperations() (operationSet, *blocks) {
	all := operationSet{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete}
	blocksOfMatch, _ := r.Match.filters()
	if slices.ContainsFunc(blocksOfMatch, func(f filter) bool {
		return slices.ContainsFunc(f.Resources.Kinds, hasConnect) ||
			slices.Contains(f.Resources.Operations, admissionregistrationv1.Connect)
	}) {
		all = append(all, admissionregistrationv1.Connect)
	}
	if r.Preconditions == nil || r.Preconditions.list != nil {
		return all, r.Preconditions
	}
	rest := &blocks{Block: conditions.Block{Any: r.Preconditions.Any}}
	for _, c := range r.Preconditions.All {
		if narrowed, ok := all.narrow(c); ok {
			all = narrowed
		} else {
			rest.All = append(rest.All, c)
		}
	}
	return all, rest
}

// appliesToDelete reports whether Kyverno evaluates the rule for DELETE too: patterns, and
// lists of the new object, have no effect then.
func (r *rule) appliesToDelete() bool {
	v := r.Validate
	if v == nil || v.Pattern != nil || v.AnyPattern != nil || v.PodSecurity != nil {
		return false
	}
	return v.ForEach == nil ||
		slices.ContainsFunc(v.ForEach, func(f forEach) bool { return !strings.Contains(f.List, "request.object") })
}

// ignoresDelete reports whether Kyverno evaluates for DELETE only what comes before the check of a
// validation. The webhook for mutations is not called for DELETE.
func (r *rule) ignoresDelete() bool {
	blocks, _ := r.Match.filters()
	operations, _ := r.narrowedOperations()
	return r.Mutate == nil && !r.appliesToDelete() && slices.Contains(operations, admissionregistrationv1.Delete) &&
		slices.ContainsFunc(blocks, func(f filter) bool {
			return slices.Contains(operations.namedOperations(f.Resources.Operations), admissionregistrationv1.Delete)
		})
}

// Notes about operations for which a rule has no effect unless it cannot be evaluated.
const (
	noteDelete = "DELETE is not decided: Kyverno denies it if it cannot evaluate preconditions, the context or the " +
		"list of foreach"
	noteOperation = "an operation that preconditions exclude is not decided: Kyverno denies it if it cannot evaluate " +
		"a precondition before"
)

// noteMutationOfDelete is the note about mutations that name DELETE, for which there is no object to change.
const noteMutationOfDelete = "DELETE is not decided: Kyverno denies it, because it cannot apply the patch"

// namesDelete reports whether a rule names the operation DELETE.
func (r *rule) namesDelete() bool {
	blocks, _ := r.Match.filters()
	return slices.ContainsFunc(blocks, func(f filter) bool {
		return slices.Contains(f.Resources.Operations, admissionregistrationv1.Delete)
	})
}

// noteOperations reports the operations that are not decided although the evaluation can fail.
func (v *ruleConverter) noteOperations(preconditions conditions.Result) {
	lists := v.rule.Validate != nil && slices.ContainsFunc(v.rule.Validate.ForEach, func(f forEach) bool {
		return strings.Contains(f.List, "(") || !strings.HasPrefix(f.List, "request.") // functions fail for null
	})
	if v.rule.ignoresDelete() && (preconditions.Fails || lists) {
		v.notes = append(v.notes, noteDelete)
	}
	if v.rule.Mutate != nil && v.rule.namesDelete() {
		v.notes = append(v.notes, noteMutationOfDelete)
	}
	if preconditions.Fails && v.rule.excludesOperationLate() {
		v.notes = append(v.notes, noteOperation)
	}
}

// excludesOperationLate reports whether Kyverno evaluates another precondition before one that excludes an
// operation.
func (r *rule) excludesOperationLate() bool {
	p := r.Preconditions
	if p == nil || p.list != nil {
		return false
	}
	all := operationSet{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete}
	for i, c := range p.All {
		narrowed, ok := all.narrow(c)
		if ok && len(narrowed) < len(all) && (i > 0 || p.Any != nil) {
			return true
		}
	}
	return false
}

// hasConnect reports whether a kind has requests with the operation CONNECT.
func hasConnect(kind string) bool {
	k, _ := parseKind(kind)
	return strings.Contains(k.subresource, "*") ||
		slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, k.subresource)
}

// narrow returns the operations that satisfy a condition, if it is only about the operation.
func (s operationSet) narrow(c conditions.Condition) (operationSet, bool) {
	key, _ := c.Key.(string)
	key, _, _ = strings.Cut(strings.Trim(key, "{} "), "||")
	if strings.TrimSpace(key) != "request.operation" {
		return s, false
	}
	values, isList := c.Value.([]any)
	if !isList {
		values = []any{c.Value}
	}
	wanted, known := map[string]bool{
		"equal":     true,
		"equals":    true,
		"in":        true,
		"anyin":     true,
		"allin":     true,
		"notequal":  false,
		"notequals": false,
		"notin":     false,
		"anynotin":  false,
		"allnotin":  false,
	}[strings.ToLower(c.Operator)]
	if !known || isList && strings.Contains(strings.ToLower(c.Operator), "equal") {
		return s, false
	}
	var kept operationSet
	for _, o := range s {
		found := false
		for _, v := range values {
			text, ok := v.(string)
			if !ok || strings.Contains(text, "{{") {
				return s, false
			}
			found = found || scalar.MatchesWildcard(text, string(o))
		}
		if found == wanted {
			kept = append(kept, o)
		}
	}
	return kept, true
}
