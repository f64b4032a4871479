package registration

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// Carries reports whether an observed configuration is as planned: our labels,
// annotations and owner references are in it, and its webhooks are the planned
// ones and no others.
func Carries(have, want *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	return inForce(want, have)
}
