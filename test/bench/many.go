package bench

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// ManyName is the name of one of the policies of Many.
func ManyName(number int) string { return fmt.Sprintf("many-%05d", number) }

// Many are so many policies in so many call groups, each for a namespace. Policy
// i belongs to group i modulo groups, and refuses the ConfigMaps whose data
// gives its number. No two have an expression in common.
func Many(count, groups int, namespace func(group int) string) []*v1alpha1.WebhookPolicy {
	out := make([]*v1alpha1.WebhookPolicy, count)
	for i := range out {
		out[i] = &v1alpha1.WebhookPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: ManyName(i)},
			Spec: v1alpha1.WebhookPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace(i % groups)}},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					}}},
				},
				Validations: []v1alpha1.Validation{{
					Expression: fmt.Sprintf("object.data.number != '%d'", i), Message: fmt.Sprintf("number %d is refused", i),
				}},
			},
		}
	}
	return out
}
