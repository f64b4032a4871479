package integration

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// A corrected object leaves the results without a scan, which would be an hour later.
func TestAuditForgetsCorrectedObjects(t *testing.T) {
	c := install(t)
	m := c.audited(t)
	namespace := c.namespace(t, nil)
	var objects []*corev1.ConfigMap
	for i := range 3 {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("audited-%d", i)}}
		o.Labels = map[string]string{"verdict": "bad"}
		must(t, c.Create(t.Context(), o))
		objects = append(objects, o)
	}
	const name = "finds-bad-config"
	good := `object.metadata.?labels.verdict.orValue("") != "bad"`
	c.enforce(t, newPolicy(name, namespace, saying(good), acting(admissionregistrationv1.Audit)))
	var scanned *metav1.Time
	awaitViolations := func(want int64) {
		t.Helper()
		c.awaitAudit(t, name, func(s *v1alpha1.AuditStatus) error {
			if s.Violations == nil || *s.Violations != want || s.Time == nil {
				return fmt.Errorf("want %d violations", want)
			}
			if scanned != nil && !s.Time.Equal(scanned) {
				return errors.New("want no other scan")
			}
			scanned = s.Time
			return nil
		})
	}
	awaitViolations(3)
	evaluations := func() float64 { return m.series(t, "ostiary_audit_evaluations_total") }
	before := evaluations()
	objects[1].Labels = nil
	must(t, c.Update(t.Context(), objects[1]))
	awaitViolations(2)
	if got := evaluations() - before; got != 1 {
		t.Errorf("%v evaluations for a corrected object, want 1", got)
	}

	// Many changes are few reads, and an object that is bad again waits for the scan.
	before = evaluations()
	objects[1].Labels = map[string]string{"verdict": "bad"}
	must(t, c.Update(t.Context(), objects[1]))
	const changes = 100
	for i := range changes {
		objects[0].Data = map[string]string{"change": fmt.Sprint(i)}
		must(t, c.Update(t.Context(), objects[0]))
	}
	objects[0].Labels = nil
	must(t, c.Update(t.Context(), objects[0]))
	awaitViolations(1)
	if got := evaluations() - before; got >= changes/4 {
		t.Errorf("%v evaluations for %d changes of an object", got, changes)
	}
	must(t, c.Delete(t.Context(), objects[2]))
	awaitViolations(0)
	c.awaitAudit(t, name, func(s *v1alpha1.AuditStatus) error {
		if len(s.Examples) > 0 || ptr.Deref(s.Violations, -1) != 0 {
			return errors.New("want no example")
		}
		return nil
	})
	c.testNumbersOfNewGeneration(t, name)
}

// testNumbersOfNewGeneration changes a policy that denies no stored object into one that denies all.
// No status of the new generation has the numbers of the previous one.
func (c *cluster) testNumbersOfNewGeneration(t *testing.T, name string) {
	t.Helper()
	c.change(t, name, saying("object.metadata.name.startsWith('no object has this name')"))
	await(t).Eventually(func() (bool, error) {
		p, err := c.policy(t.Context(), name)
		if err != nil || p.Status.ObservedGeneration != p.Generation {
			return false, err
		}
		audited := condition(p, v1alpha1.ConditionAudited)
		if isScanned := audited.Status != metav1.ConditionUnknown; isScanned != (p.Status.Audit != nil) {
			return false, StopTrying(fmt.Sprintf("Audited is %s: %s, with the result %+v", audited.Status, audited.Message, p.Status.Audit))
		}
		if p.Status.Audit != nil && ptr.Deref(p.Status.Audit.Violations, -1) < 2 {
			return false, StopTrying(fmt.Sprintf("the result of an earlier generation: %+v", *p.Status.Audit))
		}
		return p.Status.Audit != nil, nil
	}).Should(BeTrue())
}
