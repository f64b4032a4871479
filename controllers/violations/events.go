package violations

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

// ReasonViolation is the reason of Events about violations.
const ReasonViolation = "PolicyViolation"

// Within eventPeriod, Events have at most maxSeries combinations of a policy, a decision and an owner, and those of a
// namespace maxSeriesOfNamespace. The recorder writes one Event for each, and counts repetitions in it.
const (
	eventPeriod          = 5 * time.Minute
	maxSeries            = 300
	maxSeriesOfNamespace = 20
)

// eventSink records Events of violations. It is not safe for concurrent use.
type eventSink struct {
	recorder clientevents.EventRecorder
	began    time.Time
	seen     map[string]map[series]bool // by namespace
	total    int
}

// series are the violations that one Event counts.
type series struct {
	policy   string
	decision policy.Decision
	owner    owner
}

// add records the Event of a violation. Violations of cluster-scoped objects, and of Namespaces, which may not exist,
// have none, nor have dry runs, previews and what exceptions let pass. An Event about a denied Event could be denied, too.
func (e *eventSink) add(r *record, now time.Time) {
	o := r.Object
	isNoViolation := r.Decision == policy.DecisionExcepted || r.Decision == policy.DecisionPreview
	if r.DryRun || isNoViolation || o.Namespace == "" || o.Resource == "namespaces" || o.Resource == "events" {
		return
	}
	s := series{policy: r.Policy, decision: r.Decision}
	if r.Owner != nil {
		s.owner = *r.Owner
	}
	if !e.hasRoom(r.Object.Namespace, s, now) {
		return
	}
	regarding := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: r.Object.Namespace, Namespace: r.Object.Namespace}
	if s.owner.Name != "" && s.owner.Kind != "Node" { // other owners of namespaced objects are in their namespace
		regarding = &corev1.ObjectReference{
			APIVersion: s.owner.APIVersion,
			Kind:       s.owner.Kind,
			Name:       s.owner.Name,
			Namespace:  r.Object.Namespace,
			UID:        types.UID(s.owner.UID),
		}
	}
	related := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy", Name: r.Policy}
	e.recorder.Eventf(regarding, related, corev1.EventTypeWarning, ReasonViolation, actionOf(r.Decision), "%s", r.note())
}

// hasRoom reports whether an Event of a series is within the bounds.
func (e *eventSink) hasRoom(namespace string, s series, now time.Time) bool {
	if now.Sub(e.began) >= eventPeriod {
		e.began, e.seen, e.total = now, map[string]map[series]bool{}, 0
	}
	known := e.seen[namespace]
	switch {
	case known[s]:
		return true
	case e.total == maxSeries || len(known) == maxSeriesOfNamespace:
		return false
	case known == nil:
		known = map[series]bool{}
		e.seen[namespace] = known
	}
	known[s] = true
	e.total++
	return true
}

func actionOf(d policy.Decision) string {
	switch d {
	case policy.DecisionDeny:
		return "Deny"
	case policy.DecisionWarn:
		return "Warn"
	case policy.DecisionAudit:
		return "Audit"
	}
	return "Evaluate"
}

// note describes a violation to the users of its namespace, without the user of the request.
func (r *record) note() string {
	verb := map[policy.Decision]string{
		policy.DecisionDeny: "denied", policy.DecisionWarn: "warned about", policy.DecisionAudit: "audited",
	}[r.Decision]
	if verb == "" {
		verb = "could not evaluate"
	}
	what := r.Object.Resource
	if r.Object.Subresource != "" {
		what += "/" + r.Object.Subresource
	}
	if r.Object.Name != "" {
		what += fmt.Sprintf(" %q", r.Object.Name)
	}
	out := fmt.Sprintf("WebhookPolicy %q %s %s of %s", r.Policy, verb, r.Operation, what)
	if len(r.Violations) > 0 {
		out += ": " + r.Violations[0].Message
	}
	return truncate.String(out, truncate.EventMessage)
}
