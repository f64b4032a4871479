package verify

import (
	"fmt"
	"strings"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// The kind of Kyverno's exceptions, and the group of its classic policies, which have rules.
const (
	kindException = "PolicyException"
	groupClassic  = "kyverno.io"
)

// ruleOf returns the rule of a result without the prefix of rules that Kyverno generates. It is
// empty for policies without rules, because Kyverno does not read it then.
func ruleOf(r *kyvernoResult, policies []conversion.Conversion) string {
	for _, c := range policies {
		if c.Source.GroupVersionKind().Group == groupClassic {
			return strings.TrimPrefix(strings.TrimPrefix(r.Rule, "autogen-cronjob-"), "autogen-")
		}
	}
	return ""
}

// withoutResult says why no converted policy has a rule.
func withoutResult(policy, rule string, policies []conversion.Conversion) string {
	if len(policies) == 0 {
		return fmt.Sprintf("the files of the test have no policy %q", policy)
	}
	known := false
	for _, c := range policies {
		for _, row := range c.Rows {
			if row.Outcome == conversion.LeftOut && (rule == "" || row.Rule == rule || row.Field == "") {
				return "the rule is left out: " + row.Detail
			}
			known = known || row.Rule == rule
		}
	}
	if known || rule == "" {
		return "the rule has no result"
	}
	return fmt.Sprintf("the policy has no rule %q", rule)
}

// withoutObject says why a result is about no object.
func (in *kyvernoInputs) withoutObject(r *kyvernoResult, names []string) string {
	switch {
	case in.test.given():
		return "the test is about payloads, and policies decide requests"
	case len(in.resources) == 0:
		return "the test has no resources"
	}
	for i := range in.resources {
		o := &in.resources[i]
		if !r.names(names, o) {
			continue
		}
		if r.Kind != "" && kindOf(r.Kind) != o.Kind {
			return fmt.Sprintf("the files of the test have %s, and the result is for the kind %s", o, r.Kind)
		}
		return fmt.Sprintf("the files of the test have %s, and the result is for the namespace %s", o, r.Namespace)
	}
	return "the files of the test have no such object"
}
