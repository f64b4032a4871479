package registration

import (
	"bytes"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// ReviewConfiguration is the name of the configuration with the webhook that
	// validates policies. No call group has such a name.
	ReviewConfiguration = "ostiary-webhookpolicies"
	// ReviewPath is the path of the webhook that validates policies, after the
	// capability.
	ReviewPath = "/validate-webhookpolicy"

	// CanaryLabel is the label of the object for which a canary is called. Its
	// value is the phase.
	CanaryLabel = v1alpha1.GroupName + "/canary"
	// CanaryNonce is the annotation with the nonce that the response repeats.
	CanaryNonce = v1alpha1.GroupName + "/canary-nonce"
	// CanaryPath is the path of canaries between the capability and the phase.
	CanaryPath = "/canary/"

	reviewWebhook     = "webhookpolicies" + webhookDomain
	ownTimeoutSeconds = 5
)

// CanaryConfiguration returns the name of the phase's canary configuration. No call
// group has such a name.
func (p Phase) CanaryConfiguration() string { return "ostiary-canary-" + string(p) }

// CanaryWebhook returns the name of the phase's canary webhook. API servers quote it
// in messages.
func (p Phase) CanaryWebhook() string { return "canary-" + string(p) + webhookDomain }

// CanaryMessage returns the message with which a canary denies a request.
func CanaryMessage(nonce string) string { return "Ostiary was reached: " + nonce }

// Own are the settings that are equal for all of Ostiary's own configurations: the
// canaries and the webhook that validates policies.
type Own struct {
	// Endpoint is the address of Ostiary.
	Endpoint Endpoint
	// Capability is the secret first segment of the paths of Ostiary's webhooks.
	Capability string
	// CABundle is the bundle with which API servers verify Ostiary's certificate.
	CABundle []byte
	// Epoch is the epoch of the CA bundle, 0 if it has none.
	Epoch int64
	// Owner is the CustomResourceDefinition of policies. Garbage collection deletes
	// the configurations with it.
	Owner metav1.OwnerReference
}

// configuration returns a configuration with one webhook. It sets the fields of the
// webhook that are equal for all of Ostiary's own webhooks.
func (o Own) configuration(phase Phase, name, path string, w webhook) Configuration {
	w.ClientConfig = o.Endpoint.clientConfig(withCapability(o.Capability, path), bytes.Clone(o.CABundle))
	w.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
	w.TimeoutSeconds = new(int32(ownTimeoutSeconds))
	w.AdmissionReviewVersions = []string{"v1"}
	c := NewConfiguration(phase)
	c.GetObjectKind().SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(phase.kind()))
	c.SetName(name)
	c.SetLabels(map[string]string{LabelManagedBy: ManagedBy})
	setEpoch(c, o.Epoch)
	c.SetOwnerReferences([]metav1.OwnerReference{o.Owner})
	setWebhooks(c, []webhook{w})
	return c
}

// Review returns the configuration of the webhook that validates policies. It is
// the only webhook for Ostiary's own API, and cannot lock out users: its
// failurePolicy is Ignore, and it is not called for deletions and status updates.
func (o Own) Review() Configuration {
	return o.configuration(PhaseValidate, ReviewConfiguration, ReviewPath, webhook{
		Name: reviewWebhook,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{v1alpha1.GroupVersion.Version},
				Resources: []string{"webhookpolicies"}, Scope: new(admissionregistrationv1.ClusterScope),
			},
		}},
		FailurePolicy:     new(admissionregistrationv1.Ignore),
		MatchPolicy:       new(admissionregistrationv1.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector:    &metav1.LabelSelector{},
	})
}

// Canary returns the configuration that tests whether API servers reach Ostiary in
// a phase. Its webhook is called for one labeled ConfigMap in Ostiary's namespace,
// which exists only in dry-run requests.
func (o Own) Canary(phase Phase, namespace string) Configuration {
	w := webhook{
		Name: phase.CanaryWebhook(),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}},
		FailurePolicy:     new(admissionregistrationv1.Fail),
		MatchPolicy:       new(admissionregistrationv1.Exact),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{CanaryLabel: string(phase)}},
	}
	if phase == PhaseMutate {
		w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	}
	return o.configuration(phase, phase.CanaryConfiguration(), CanaryPath+string(phase), w)
}
