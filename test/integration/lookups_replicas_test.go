package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func labelledLimits(namespace, name, verdict string) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"verdict": verdict}}}
}

// A policy is Ready only if every replica can use its lookups.
func TestLookupsWaitForReplicas(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.mayLookUp(t, "", "limitranges")
	const name = "looks-up-replicas"
	c.enforce(t, newPolicy(name, namespace, lookingUp(v1alpha1.Lookup{Resource: lookupResource("", "v1", "limitranges")})))
	g := c.gate(t)
	open := g.keep(t, "limitranges", disconnects)
	second := c.startAnother(t, "--kubeconfig="+g.kubeconfig)
	c.awaitLookups(t, name, metav1.ConditionFalse, "WaitingForReplicas", "waiting for replica "+second.replica+", which cannot use it yet")
	c.awaitCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionFalse)
	await(t).Eventually(func() float64 { return second.series(t, "ostiary_lookups_unready") }).Should(Equal(1.0))
	open()
	c.awaitLookups(t, name, metav1.ConditionTrue, "Complete", "")
	c.awaitReady(t, name)
	await(t).Eventually(func() float64 { return second.series(t, "ostiary_lookups_unready") }).Should(Equal(0.0))
}

// A replica that does not hear from the API server stops deciding by what it has read.
func TestLookupsOfASilentWatch(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	m := c.behind(t, g, "--lookup-max-age=1m")
	namespace := c.namespace(t, nil)
	c.mayLookUp(t, "", "limitranges")
	stored := labelledLimits(namespace, "stored", "one")
	c.create(t, stored)
	const name = "looks-up-silent"
	c.enforce(t, newPolicy(name, namespace, lookingUp(v1alpha1.Lookup{Resource: lookupResource("", "v1", "limitranges")})))
	c.awaitVerdict(t, namespace, "one", name, "the verdict is that of stored")
	open := g.keep(t, "limitranges", silent)
	g.cut() // the watches that are open
	must(t, c.Delete(t.Context(), stored))
	c.create(t, labelledLimits(namespace, "later", "two"))
	const old = "the API server has not confirmed the limitranges for more than 1m0s, the limit of --lookup-max-age"
	c.awaitVerdict(t, namespace, "two", name, old)
	c.awaitVerdict(t, namespace, "one", name, old)
	c.awaitLookups(t, name, metav1.ConditionFalse, "LookupsNotReady", old)
	if age := m.series(t, `ostiary_lookup_age_seconds{resource="limitranges.v1."}`); age < 60 {
		t.Errorf("the age of the data is %v seconds", age)
	}
	open()
	c.awaitVerdict(t, namespace, "two", name, "the verdict is that of later")
	c.awaitVerdict(t, namespace, "one", name, "")
	c.awaitLookups(t, name, metav1.ConditionTrue, "Complete", "")
}

// A tenant with more objects than its share makes only its own requests errors.
func TestLookupsOfATenantBeyondItsShare(t *testing.T) {
	c := install(t)
	c.restarted(t, "--lookup-entries=1000")
	c.manager(t)
	namespace, tenant := c.namespace(t, nil), c.namespace(t, nil)
	c.mayLookUp(t, "", "limitranges")
	c.create(t, labelledLimits(namespace, "stored", "one"))
	both := func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace, tenant}},
		}}
	}
	const name = "looks-up-tenant"
	c.enforce(t, newPolicy(name, namespace, lookingUp(v1alpha1.Lookup{Resource: lookupResource("", "v1", "limitranges")}), both))
	for i := range 126 {
		must(t, c.Create(t.Context(), labelledLimits(tenant, fmt.Sprintf("l%d", i), "one")))
	}
	excess := fmt.Sprintf("the objects in namespace %q have more than 125 keys", tenant)
	c.awaitLookups(t, name, metav1.ConditionFalse, "LookupsNotReady",
		fmt.Sprintf("lookup found: failurePolicy decides requests in namespace %q", tenant))
	c.awaitVerdict(t, tenant, "two", name, excess)
	c.awaitVerdict(t, namespace, "one", name, "the verdict is that of stored")
	c.awaitVerdict(t, namespace, "two", name, "")
}
