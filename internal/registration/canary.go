package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// CanaryLabel marks the one object that a canary is called for; its value is
	// the phase.
	CanaryLabel = v1alpha1.GroupName + "/canary"
	// CanaryNonce is the annotation whose value the answer repeats.
	CanaryNonce = v1alpha1.GroupName + "/canary-nonce"
	// CanaryPath begins the path of the canaries, after the capability. The phase
	// follows.
	CanaryPath = "/canary/"

	canaryTimeout int32 = 5
)

// CanaryConfiguration is the name of the configuration of the phase's canary. It
// is not one of a call group.
func (p Phase) CanaryConfiguration() string { return "ostiary-canary-" + string(p) }

// CanaryWebhook is the name of the phase's canary in messages of API servers.
func (p Phase) CanaryWebhook() string { return "canary" + p.webhookDomain() }

// CanaryMessage is what a canary's denial says.
func CanaryMessage(nonce string) string { return "Ostiary was reached: " + nonce }

// Canary is the configuration that proves, for one kind of webhooks, that API
// servers reach Ostiary: of one webhook for one labelled object in Ostiary's
// namespace, which nobody creates. Like every other it is at the endpoint of all
// groups, trusts their bundle, and says of which epoch that is.
func Canary(phase Phase, endpoint Endpoint, capability string, caBundle []byte, epoch int64, namespace string) Configuration {
	w := webhook{
		Name:         phase.CanaryWebhook(),
		ClientConfig: endpoint.clientConfig(withCapability(capability, CanaryPath+string(phase)), caBundle),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}},
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             new(admissionregistrationv1.Exact),
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{CanaryLabel: string(phase)}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(canaryTimeout),
		AdmissionReviewVersions: []string{"v1"},
	}
	if phase == PhaseMutate {
		w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	}
	config := NewConfiguration(phase)
	config.GetObjectKind().SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(phase.kind()))
	config.SetName(phase.CanaryConfiguration())
	config.SetLabels(map[string]string{LabelManagedBy: ManagedBy})
	setEpoch(config, epoch)
	setWebhooks(config, []webhook{w})
	return config
}
