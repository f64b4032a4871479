package status

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/audit/results"
)

// timeInterval is the interval, on average, between two writes of a status because of the
// time of a scan: after most scans, nothing else changes, but that for all policies.
const timeInterval = 5 * time.Second

// auditOf returns the result of the audit for a status; nil if none is about this generation.
// Without one of this leader, it is the written one, of an earlier leader. A result that only has a
// later time does not replace the written one before timeInterval for each policy.
func auditOf(p *v1alpha1.WebhookPolicy, in *inputs, state *policies.State) *v1alpha1.AuditStatus {
	if !in.audits {
		return nil
	}
	var written *v1alpha1.AuditStatus
	if find(p.Status, v1alpha1.ConditionAudited).ObservedGeneration == p.Generation {
		written = p.Status.Audit
	}
	now := in.audit.Status
	switch {
	case in.audit.Subject != results.SubjectOf(p):
		return written
	case state == nil || written == nil || written.Time == nil || now.Time == nil:
		return now
	}
	result := *now
	result.Time = written.Time
	if now.Time.Sub(written.Time.Time) < time.Duration(len(state.Entries))*timeInterval && equality.Semantic.DeepEqual(&result, written) {
		return written
	}
	return now
}

// auditedCondition returns the condition about the result of the audit for a generation of a policy,
// without a status if the audit does not run.
func auditedCondition(p *v1alpha1.WebhookPolicy, o *observation, isRunning bool, result *v1alpha1.AuditStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAudited}
	if !isRunning {
		return c
	}
	if result == nil {
		c.Status, c.Reason = metav1.ConditionUnknown, ReasonPending
		c.Message = "this generation has not been evaluated on all stored objects yet"
		if o.isReplaced(p) {
			c.Message += "; " + untilThen(p, o)
		}
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonIncomplete, strings.Join(result.Missing, "; ")
	switch {
	case len(result.Missing) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonComplete
		c.Message = "every stored object that the policy matches is evaluated"
	case result.Summary == v1alpha1.AuditNotAudited:
		c.Reason = ReasonNotAuditable
	case result.Summary == v1alpha1.AuditNoAccess:
		c.Reason = ReasonNoAccess
	}
	return c
}
