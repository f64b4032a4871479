package v1alpha1

import "time"

// AnnotationSuspendedUntil holds the time until which a policy has no effect on requests, as
// 2027-03-01T12:00:00Z (RFC 3339). To set, change or remove it, a user needs the verb suspend on
// the policy. The audit of stored objects goes on.
const AnnotationSuspendedUntil = GroupName + "/suspended-until"

// MaxSuspension is how long a suspension lasts at most. It is for incidents: to weaken a policy for longer, change its spec, where a
// review and Git show that.
const MaxSuspension = 7 * 24 * time.Hour

// IsSuspended reports whether a suspension until a time is in effect. One that was written for more than MaxSuspension is not, before
// that time is left, so that every replica decides alike without knowing when it was written.
func IsSuspended(until, now time.Time) bool {
	left := until.Sub(now)
	return !until.IsZero() && left > 0 && left <= MaxSuspension
}

// SuspendedUntil returns the time in AnnotationSuspendedUntil. It is zero if the annotation is
// absent or invalid, and for a policy with a backend, which API servers call themselves.
func (p *WebhookPolicy) SuspendedUntil() time.Time {
	text := p.Annotations[AnnotationSuspendedUntil]
	if text == "" || p.Spec.Backend != nil {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return until
}
