package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// CanaryLabel is the label of the object for which a canary is called. Its
	// value is the phase.
	CanaryLabel = v1alpha1.GroupName + "/canary"
	// CanaryNonce is the annotation with the nonce that the response repeats.
	CanaryNonce = v1alpha1.GroupName + "/canary-nonce"
	// CanaryPath is the path of canaries between the capability and the phase.
	CanaryPath = "/canary/"

	canaryTimeout int32 = 5
)

// CanaryConfiguration returns the name of the phase's canary configuration. No call
// group has such a name.
func (p Phase) CanaryConfiguration() string { return "ostiary-canary-" + string(p) }

// CanaryWebhook returns the name of the phase's canary webhook. API servers quote it
// in messages.
func (p Phase) CanaryWebhook() string { return "canary" + p.webhookDomain() }

// CanaryMessage returns the message with which a canary denies a request.
func CanaryMessage(nonce string) string { return "Ostiary was reached: " + nonce }

// Canary returns the configuration that tests whether API servers reach Ostiary in
// a phase. Its webhook is called for one labeled ConfigMap in Ostiary's namespace,
// which exists only in dry-run requests. Endpoint, bundle and epoch are those of all
// call groups.
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
