package integration

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Values that objects hold: those of Secrets, and those of ConfigMaps.
const (
	valueOfSecret        = "s3cr3t-of-secret"
	encodedValueOfSecret = "czNjcjN0LW9mLXNlY3JldA=="
	valueOfConfigMap     = "s3cr3t-of-configmap"
)

// quotingPolicies returns policies on some namespaces whose messages and errors quote values of objects.
func quotingPolicies(t *testing.T, namespaces map[string]string) (out []*v1alpha1.WebhookPolicy) {
	t.Helper()
	const (
		quote   = `string(object.?data.orValue({}).map(k, object.data[k])[0])`
		message = `{validations: [{expression: "false", messageExpression: '"got " + %s'}]}`
	)
	for name, spec := range map[string]string{
		"quoting-message":    message,
		"quoting-error":      `{validations: [{expression: '{"a": true}[%s]'}]}`,
		"quoting-condition":  `{matchConditions: [{name: c, expression: 'ip(%s).family() == 4'}], validations: [{expression: "true"}]}`,
		"quoting-annotation": `{validations: [{expression: "true"}], auditAnnotations: [{key: k, valueExpression: 'string({"a": 1}[%s])'}]}`,
		"quoting-mutation":   `{failurePolicy: Ignore, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/data/" + %s}]'}}]}`,
	} {
		p := newPolicy(name, "")
		p.Spec.Validations = nil
		p.Spec.MatchConstraints.NamespaceSelector.MatchLabels = namespaces
		p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"secrets", "configmaps"}
		must(t, yaml.UnmarshalStrict(fmt.Appendf(nil, spec, quote), &p.Spec))
		out = append(out, p)
	}
	return out
}

// sinks returns what Ostiary writes besides answers: its log, metrics, Events, policies, Leases and reports.
func (c *cluster) sinks(t *testing.T, m *process) map[string]string {
	t.Helper()
	log, err := m.output()
	must(t, err)
	_, metrics, err := m.get(t.Context(), m.metrics, "/metrics")
	must(t, err)
	out := map[string]string{"log": log, "metrics": metrics}
	reports, _ := c.reportClient(t)
	for name, of := range map[string]struct {
		client.Client
		client.ObjectList
	}{
		"events": {c, &eventsv1.EventList{}}, "policies": {c, &v1alpha1.WebhookPolicyList{}}, "leases": {c, &coordinationv1.LeaseList{}},
		"reports": {reports, &openreportsv1alpha1.ReportList{}}, "cluster reports": {reports, &openreportsv1alpha1.ClusterReportList{}},
	} {
		must(t, of.List(t.Context(), of.ObjectList))
		text, err := json.Marshal(of.ObjectList)
		must(t, err)
		out[name] = string(text)
	}
	return out
}

// Values of objects reach the client of the request. With --report-values, those of ConfigMaps reach lines, Events and
// reports, too, and those of Secrets do not.
func TestValuesReachOnlyTheClient(t *testing.T) {
	c := install(t)
	for _, permitted := range []bool{false, true} {
		t.Run(fmt.Sprintf("report-values=%t", permitted), func(t *testing.T) { testValues(t, c, permitted) })
	}
}

func testValues(t *testing.T, c *cluster, permitted bool) {
	m := c.audited(t, "--report-violations=log,events", "--log-level=debug", fmt.Sprintf("--report-values=%t", permitted))
	m.awaitReady(t)
	matched := map[string]string{"quoted": strconv.FormatBool(permitted)}
	ofSecrets, ofConfigMaps := c.namespace(t, matched), c.namespace(t, matched)
	stored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ofConfigMaps, Name: "stored"},
		Data:       map[string]string{"k": valueOfConfigMap},
	}
	must(t, c.Create(t.Context(), stored))
	policies := quotingPolicies(t, matched)
	c.enforce(t, policies...)
	for _, o := range []struct {
		client.Object
		value string // in the request; that of a Secret is base64
	}{
		{
			Object: &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: ofSecrets, Name: "quoted"},
				StringData: map[string]string{"k": valueOfSecret},
			},
			value: encodedValueOfSecret,
		},
		{
			Object: &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: ofConfigMaps, Name: "quoted"},
				Data:       map[string]string{"k": valueOfConfigMap},
			},
			value: valueOfConfigMap,
		},
	} {
		await(t).Eventually(func(g Gomega) { // API servers use new configurations a moment later
			err := c.Create(t.Context(), o.DeepCopyObject().(client.Object))
			g.Expect(err).To(MatchError(And(ContainSubstring("got "+o.value), ContainSubstring("no such key: "+o.value),
				ContainSubstring(`IP Address "`+o.value))))
			for _, p := range policies {
				log, err := m.output()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(log).To(MatchRegexp(`"log":"violation","policy":%q.*"namespace":%q`, p.Name, o.GetNamespace()))
			}
			g.Expect(c.violationEvents(t, o.GetNamespace())).To(HaveLen(len(policies)))
		}).Should(Succeed())
	}
	reports, _ := c.reportClient(t)
	await(t).Eventually(func(g Gomega) {
		var r openreportsv1alpha1.Report
		g.Expect(reports.Get(t.Context(), client.ObjectKey{Namespace: ofConfigMaps, Name: "ostiary"}, &r)).To(Succeed())
		g.Expect(len(r.Results)).To(BeNumerically(">=", 2))
	}).Should(Succeed())

	for name, text := range c.sinks(t, m) {
		if strings.Contains(text, valueOfSecret) || strings.Contains(text, encodedValueOfSecret) {
			t.Errorf("%s: the value of a Secret is in it", name)
		}
		want := permitted && (name == "log" || name == "events" || name == "reports")
		if got := strings.Contains(text, valueOfConfigMap); got != want {
			t.Errorf("%s: the value of a ConfigMap is in it: %t, want %t", name, got, want)
		}
	}
}
