package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// With --audit-native, the audit finds what native policies deny and warn about in dry-run
// updates, which the API server evaluates itself.
func TestAuditOfNativePolicies(t *testing.T) {
	c := install(t)
	c.audited(t, "--audit-native")
	reports, warned := c.reportClient(t)
	namespace := c.namespace(t, nil)
	objects := c.storeKinds(t, namespace, 6)
	c.mayRead(t, "", "resourcequotas")
	must(t, c.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "verdicts", Labels: map[string]string{"denied": "bad"}},
	}))
	// The API server names only the first policy that denies a request, so each object is denied by one.
	names := []string{"native-denies", "native-reads-params", "native-warns"}
	const hasVerdict = `has(object.metadata.labels) && "verdict" in object.metadata.labels`
	c.native(t, onStored(names[0], namespace, "!("+hasVerdict+`) || object.metadata.labels.verdict != "good"`,
		acting(admissionregistrationv1.Deny)), namespace)
	c.native(t, onStored(names[1], namespace,
		"!("+hasVerdict+`) || object.metadata.labels.verdict != params.metadata.labels.denied`,
		func(p *v1alpha1.WebhookPolicy) {
			acting(admissionregistrationv1.Deny)(p)
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ResourceQuota"}
			p.Spec.Bindings[0].ParamRef = &admissionregistrationv1.ParamRef{
				Namespace:               namespace,
				Name:                    "verdicts",
				ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction),
			}
		}), namespace)
	c.native(t, onStored(names[2], namespace, hasVerdict, acting(admissionregistrationv1.Warn)), namespace)
	c.native(t, onStored("native-reads-user", namespace, `request.userInfo.username != ""`, acting(admissionregistrationv1.Audit)), namespace)

	var want []string
	await(t).Eventually(func() error { // the API server compiles them in the background
		before := want
		want = updateFindings(t, reports, warned, objects, names)
		if !slices.Equal(before, want) {
			return errors.New("some were not enforced yet for the first objects")
		}
		for _, name := range names {
			if !slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, name+" ") }) {
				return fmt.Errorf("%s is not enforced", name)
			}
		}
		return nil
	}).Should(Succeed())
	awaitFindings(t, reports, namespace, want)
	await(t).Eventually(func() error { return sourcesOfNative(t, reports, namespace) }).Should(Succeed())

	must(t, c.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: names[2]}}))
	want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, names[2]+" ") })
	awaitFindings(t, reports, namespace, want)
}

// sourcesOfNative returns an error unless results name the kind of native policies as their
// source, and the report of the cluster has the one that cannot be evaluated.
func sourcesOfNative(t *testing.T, c client.Client, namespace string) error {
	t.Helper()
	var r openreportsv1alpha1.Report
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ostiary"}, &r); err != nil {
		return err
	}
	for _, result := range r.Results {
		if result.Source != "ValidatingAdmissionPolicy" {
			return fmt.Errorf("the source of %s is %q", result.Policy, result.Source)
		}
	}
	var of openreportsv1alpha1.ClusterReport
	if err := c.Get(t.Context(), client.ObjectKey{Name: "ostiary"}, &of); err != nil {
		return err
	}
	if !slices.ContainsFunc(of.Results, func(result openreportsv1alpha1.ReportResult) bool {
		return result.Policy == "native-reads-user" && result.Result == "skip" && strings.Contains(result.Description, "reads request.userInfo")
	}) {
		return errors.New("want a skip with the reason for native-reads-user")
	}
	return nil
}
