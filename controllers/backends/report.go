package backends

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/validation"
)

// Report is the state of a policy's backend.
type Report struct {
	// Conditions are CAReady and Reachable.
	Conditions []metav1.Condition
	// Missing is the condition that prevents the policy from being Ready; nil if none
	// does.
	Missing *metav1.Condition
	// Temporary means that Missing needs no action.
	Temporary bool
}

// Report returns the state of a policy's backend. It is empty for a backend that
// the egress rule rejects.
func (s *Store) Report(p *v1alpha1.WebhookPolicy) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[p.UID]
	if b == nil && len(validation.CheckBackend(p.Spec.Backend, s.options.Rule)) > 0 {
		return Report{}
	}
	if b == nil {
		b = &backend{now: trust{reason: ReasonCAReading, message: "the CA bundle of the backend is being read"}}
	}
	if !b.isFor(p) { // the store learns of the new generation later than its reader
		other := *b
		other.reach = reachability{}
		b = &other
	}
	ca, reach := b.caReady(), b.reachable(&p.Spec)
	r := Report{Conditions: []metav1.Condition{ca, reach}}
	switch {
	case ca.Status == metav1.ConditionUnknown, ca.Status == metav1.ConditionFalse && !b.known:
		r.Missing, r.Temporary = &ca, ca.Status == metav1.ConditionUnknown
	case reach.Status != metav1.ConditionTrue:
		r.Missing, r.Temporary = &reach, reach.Status == metav1.ConditionUnknown
	}
	return r
}

// isFor reports whether results are about the backend of a generation of the policy.
func (b *backend) isFor(p *v1alpha1.WebhookPolicy) bool {
	return b.policy != nil && equality.Semantic.DeepEqual(b.policy.Spec.Backend, p.Spec.Backend)
}

func (b *backend) caReady() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCAReady, Status: metav1.ConditionFalse, Reason: b.now.reason, Message: b.now.message}
	switch {
	case b.now.ok():
		c.Status = metav1.ConditionTrue
	case b.now.reason == ReasonCAReading:
		c.Status = metav1.ConditionUnknown
	case b.known:
		c.Message += "; the last valid bundle stays registered"
	}
	return c
}

func (b *backend) reachable(spec *v1alpha1.WebhookPolicySpec) metav1.Condition {
	c := metav1.Condition{
		Type:    v1alpha1.ConditionReachable,
		Status:  metav1.ConditionUnknown,
		Reason:  ReasonProbing,
		Message: "no TLS handshake with the backend has been made yet",
	}
	switch {
	case b.reach.known && b.reach.ok:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonHandshake, "a TLS handshake with the backend succeeded"
	case b.reach.known:
		c.Status, c.Reason = metav1.ConditionFalse, b.reach.reason
		c.Message = failureOf(b.reach.reason) + "; " + consequence(spec.EffectiveFailurePolicy())
	}
	return c
}

// failureOf reveals nothing about the network: see Rule in internal/egress.
func failureOf(reason string) string {
	switch reason {
	case ReasonNotTrusted:
		return "the CA bundle does not verify the backend's certificate: correct the bundle or the names in the certificate"
	case ReasonUnexpectedAnswer:
		return "the backend does not complete a TLS handshake: correct its port, or serve TLS"
	}
	return "the backend is not reachable: check that its Service or host exists, has this port, and listens"
}

func consequence(policy admissionregistrationv1.FailurePolicyType) string {
	if policy == admissionregistrationv1.Ignore {
		return "while the API server cannot reach it, matching requests are allowed (failurePolicy Ignore)"
	}
	return "while the API server cannot reach it, matching requests are rejected (failurePolicy Fail)"
}
