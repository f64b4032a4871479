package integration

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// TestAuditOfLookups: of two objects that exclude each other, the audit reports both, as after two creations at the
// same moment. After the deletion of one, a later scan finds that the other, which has not changed, is alone.
func TestAuditOfLookups(t *testing.T) {
	c := install(t)
	c.audited(t, "--audit-interval=1m")
	namespace := c.namespace(t, nil)
	c.mayLookUp(t, "", "configmaps")
	labelled := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"host": "a"}}}
	}
	must(t, c.Create(t.Context(), labelled("first")))
	must(t, c.Create(t.Context(), labelled("second")))
	const name, keys = "unique-labels", `.metadata.?labels.orValue({}).map(k, k)`
	c.enforce(t, newPolicy(name, namespace, acting(admissionregistrationv1.Audit), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Lookups = []v1alpha1.Lookup{{
			Name: "same", Resource: lookupResource("", "v1", "configmaps"), StoredKeys: "stored" + keys, RequestKeys: "object" + keys,
		}}
		p.Spec.Validations = []v1alpha1.Validation{{Expression: "lookups.same.size() == 0"}}
	}))
	await := func(want int64) {
		t.Helper()
		c.awaitAudit(t, name, func(s *v1alpha1.AuditStatus) error {
			if s.Violations == nil || *s.Violations != want {
				return fmt.Errorf("want %d violations", want)
			}
			return nil
		})
	}
	await(2)
	must(t, c.Delete(t.Context(), labelled("second")))
	await(0)
}
