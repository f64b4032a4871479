package exceptions

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// The reasons of the condition Active, besides those of internal/exceptions.
const (
	ReasonApplied    = "Applied"
	ReasonEndsSoon   = "EndsSoon"
	ReasonNotGuarded = "NotGuarded"
	ReasonNotLoaded  = "NotLoaded"
	ReasonTooMany    = "TooMany"
)

// soon is how long before the end of an exception its status and an event say so.
const soon = 24 * time.Hour

// conditions is what the statuses of all exceptions depend on, at one time.
type conditions struct {
	now      time.Time
	guarded  bool
	policies map[string]*v1alpha1.WebhookPolicySpec
	compiler exceptions.Compiler
	peers    versionskew.Peers
	index    *exceptions.Index
}

// state returns what the condition Active says about an exception.
func (c *conditions) state(r *record, loaded versionskew.Vector) (active metav1.ConditionStatus, reason, message string) {
	if reason, message := c.problem(r, loaded); reason != "" {
		return metav1.ConditionFalse, reason, message
	}
	reason, message = ReasonApplied, "every replica applies the exception, which has no end"
	if !r.Expires.IsZero() {
		message = "every replica applies the exception until " + r.Expires.UTC().Format(time.RFC3339)
		if c.endsSoon(r) {
			reason, message = ReasonEndsSoon, message+", within a day: correct the objects, or create another exception"
		}
	}
	if unknown := r.UnknownValidations(c.policies[r.Policy]); len(unknown) > 0 {
		message += fmt.Sprintf("; the policy has no validations %q at spec.validations", unknown)
	}
	return metav1.ConditionTrue, reason, message
}

// endsSoon reports whether an exception ends within a day. One that lasts for no more than a day
// was meant to.
func (c *conditions) endsSoon(r *record) bool {
	return !r.Expires.IsZero() && r.Expires.Sub(r.Created) > soon && r.Expires.Sub(c.now) <= soon
}

func (c *conditions) problem(r *record, loaded versionskew.Vector) (reason, message string) {
	if !c.guarded {
		return ReasonNotGuarded, "no exception has an effect, because the ValidatingAdmissionPolicy or its binding " + GuardName +
			" is missing or differs from the installed version: delete both, and install them again"
	}
	if len(r.unknown) > 0 {
		return ReasonNotLoaded, versionskew.UnknownHere(r.unknown)
	}
	if reason, message := r.State(c.policies[r.Policy], c.now, c.compiler); reason != "" {
		return reason, message
	}
	if c.index.TooMany(r.Entry) {
		return ReasonTooMany, fmt.Sprintf("%d older exceptions of the policy %q in the same namespace have an effect, "+
			"and no more can: delete some", exceptions.MaxPerPolicyAndNamespace, r.Policy)
	}
	if why := c.peers.MissingException(r.String(), loaded); why != "" {
		return ReasonNotLoaded, why
	}
	return "", ""
}

// leftOut is what the condition Active says about an exception for which there is no memory.
func (s *Store) leftOut(r *record) (active metav1.ConditionStatus, reason, message string) {
	return metav1.ConditionFalse, ReasonTooMany, fmt.Sprintf("the older exceptions of the namespace use its share of %d MiB of memory, "+
		"or all together use %d MiB: delete some", s.limit(r.Namespace)>>20, s.limits.total>>20)
}

// status is a status to write, and the record that it is of.
type status struct {
	*record
	active          metav1.ConditionStatus
	reason, message string
	used            int64
	lastUsed        time.Time
	now             time.Time
}

// differs reports whether the condition differs from what is written.
func (s *status) differs() bool {
	w := &s.record.status
	return w.generation != s.Generation || w.active != s.active || w.text != hashOf(s.reason, s.message)
}

// fields returns the status as it is applied.
func (s *status) fields() v1alpha1.WebhookPolicyExceptionStatus {
	since := s.record.status.since
	if s.record.status.active != s.active || since.IsZero() {
		since = metav1.NewTime(s.now)
	}
	out := v1alpha1.WebhookPolicyExceptionStatus{
		ObservedGeneration: s.Generation,
		Used:               s.used,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionActive, Status: s.active, Reason: s.reason, Message: s.message,
			ObservedGeneration: s.Generation, LastTransitionTime: since,
		}},
	}
	if !s.lastUsed.IsZero() {
		out.LastUsedTime = new(metav1.NewTime(s.lastUsed))
	}
	return out
}

// records returns all records, in any order.
func (s *Store) records() (all []record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.spaces {
		for _, r := range sp.records {
			all = append(all, *r)
		}
	}
	return all
}

func (r *record) loaded() versionskew.Vector {
	if r.Namespace == "" {
		return versionskew.Vector{versionskew.ClusterExceptions: r.version}
	}
	return versionskew.Vector{versionskew.Exceptions: r.version}
}

// wrote notes a status that was written, until the watch confirms it.
func (s *Store) wrote(r *record, version string, status *v1alpha1.WebhookPolicyExceptionStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[r.Namespace]
	if sp == nil {
		return
	}
	if kept := sp.records[r.Name]; kept != nil && kept.uid == r.uid && versionskew.Reached(version, kept.current) {
		kept.current, kept.status = version, writtenIn(status)
	}
}
