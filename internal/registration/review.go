package registration

import (
	"bytes"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

	reviewWebhook        = "webhookpolicies." + v1alpha1.GroupName
	reviewTimeoutSeconds = 5
)

// NewReview returns the configuration of the webhook that validates policies. It is
// the only webhook for Ostiary's own API, and cannot lock out users: its
// failurePolicy is Ignore, and it is not called for deletions and status updates.
// The owner is the CustomResourceDefinition of policies; garbage collection deletes
// the configuration with it. epoch is that of the bundle.
func NewReview(endpoint Endpoint, capability string, caBundle []byte, epoch int64, owner metav1.OwnerReference) Configuration {
	c := NewConfiguration(PhaseValidate)
	c.GetObjectKind().SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(PhaseValidate.kind()))
	c.SetName(ReviewConfiguration)
	c.SetLabels(map[string]string{LabelManagedBy: ManagedBy})
	setEpoch(c, epoch)
	c.SetOwnerReferences([]metav1.OwnerReference{owner})
	setWebhooks(c, []webhook{{
		Name:         reviewWebhook,
		ClientConfig: endpoint.clientConfig(withCapability(capability, ReviewPath), bytes.Clone(caBundle)),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{v1alpha1.GroupVersion.Version},
				Resources: []string{"webhookpolicies"}, Scope: new(admissionregistrationv1.ClusterScope),
			},
		}},
		FailurePolicy:           new(admissionregistrationv1.Ignore),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		NamespaceSelector:       &metav1.LabelSelector{},
		ObjectSelector:          &metav1.LabelSelector{},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(reviewTimeoutSeconds)),
		AdmissionReviewVersions: []string{"v1"},
	}})
	return c
}

// Owned reports whether an observed configuration has the planned owners. It may
// have others too.
func Owned(have, want Configuration) bool {
	return !slices.ContainsFunc(want.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	})
}
