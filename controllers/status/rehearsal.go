package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/rehearsal"
	"github.com/ostiary/ostiary/internal/truncate"
)

// maxFindings is the number of findings in a message, and maxFinding the length of one in bytes:
// the cache of every replica has the messages of all policies.
const (
	maxFindings = 10
	maxFinding  = 512
)

// rehearsedCondition returns the condition about a rehearsal. Without a result, it is the written
// one if that is about this generation, which an earlier leader has rehearsed, and has no status
// otherwise. Stored objects that pass refute a finding that everything is denied.
func rehearsedCondition(p *v1alpha1.WebhookPolicy, result *rehearsal.Result, stored *v1alpha1.AuditStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRehearsed}
	if result == nil {
		if written := find(p.Status, c.Type); written.ObservedGeneration == p.Generation {
			return written
		}
		return c
	}
	omitted := result.Omitted
	if result.Stopped != "" {
		omitted = append([]string{result.Stopped}, omitted...)
	}
	findings := result.Warnings
	if passes(stored) {
		findings = slices.DeleteFunc(slices.Clone(findings), func(w advice.Warning) bool { return w.Kind == advice.DeniesAll })
	}
	var parts []string
	for _, w := range findings[:min(len(findings), maxFindings)] {
		parts = append(parts, truncate.String(w.String(), maxFinding))
	}
	if more := len(findings) - maxFindings; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more: run kubectl ostiary lint", more))
	}
	if len(omitted) > 0 {
		parts = append(parts, "not rehearsed: "+truncate.String(strings.Join(omitted, "; "), 2*maxFinding))
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonFindings, strings.Join(parts, "; ")
	switch {
	case len(findings) > 0:
	case len(omitted) > 0:
		c.Reason = ReasonIncomplete
	default:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonComplete
		c.Message = "no request was found that fails with an error or goes around the policy"
	}
	return c
}

// passes reports whether the audit found an object that a policy matches and does not deny.
func passes(stored *v1alpha1.AuditStatus) bool {
	return stored != nil && stored.Violations != nil &&
		stored.Objects > *stored.Violations+stored.ViolationsOnCreate+stored.Errors+stored.Excepted
}
