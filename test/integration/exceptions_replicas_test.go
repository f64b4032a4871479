package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/controllers/exceptions"
)

// An exception is active only if every replica has loaded it.
func TestExceptionsWaitForReplicas(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-replicas", namespace, exceptable()))
	e := excepting("exceptable-replicas", namespace)
	c.create(t, e)
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	g := c.gate(t)
	open := g.keep(t, "webhookpolicyexceptions", disconnects)
	second := c.startAnother(t, "--kubeconfig="+g.kubeconfig)
	got := c.awaitActive(t, e, metav1.ConditionFalse, exceptions.ReasonNotLoaded)
	if want := "waiting for replica " + second.replica + ", which has not loaded it yet"; got.Message != want {
		t.Errorf("message %q, want %q", got.Message, want)
	}
	if err := second.ready(t.Context()); err == nil || !strings.Contains(err.Error(), "[-]exceptions failed") {
		t.Errorf("the other replica: got %v, want it not ready", err)
	}
	open()
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	second.awaitReady(t)
	c.end(second)
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
}

// A replica that does not hear from the API server applies no exceptions: one may be deleted.
func TestExceptionsOfASilentWatch(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	m := c.behind(t, g)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-silent", namespace, exceptable()))
	e := excepting("exceptable-silent", namespace)
	c.create(t, e)
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	must(t, c.probe(t.Context(), namespace, bad))
	open := g.keep(t, "webhookpolicyexceptions", silent)
	g.cut() // the watches that are open
	must(t, c.Delete(t.Context(), e))
	c.awaitDenied(t, namespace, "exceptable-silent")
	await(t).Eventually(func() float64 { return m.series(t, "ostiary_exceptions_in_effect") }).Should(Equal(0.0))
	open()
	again := excepting("exceptable-silent", namespace)
	c.create(t, again)
	c.awaitActive(t, again, metav1.ConditionTrue, exceptions.ReasonApplied)
	must(t, c.probe(t.Context(), namespace, bad))
}
