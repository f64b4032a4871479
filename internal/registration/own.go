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
	// reviews policies. No call group has such a name.
	ReviewConfiguration = "ostiary-webhookpolicies"
	// ReviewPath is where the API server sends policies to be reviewed, after the
	// capability.
	ReviewPath = "/validate-webhookpolicy"

	reviewWebhook        = "webhookpolicies." + v1alpha1.GroupName
	reviewTimeoutSeconds = 5
)

// NewReview is the configuration of the webhook that reviews policies. It is the
// one exception from the guard that no webhook is called for Ostiary's own API,
// and cannot lock anybody out: its failurePolicy is Ignore, and it is called
// for what is created or changed, never for a deletion or a status. The owner
// is the definition of the policies' kind, with which it goes. Like every other
// it says of which epoch its bundle is.
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

// Owned reports whether an observed configuration has the owners that are
// planned, among others that it may have.
func Owned(have, want Configuration) bool {
	return !slices.ContainsFunc(want.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	})
}
