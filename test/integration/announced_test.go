package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// A policy begins to deny while workloads violate it. Each Pod that the API server then refuses to the controllers of
// Kubernetes belongs to a workload that the warning about the policy and its status have named. Without podTemplates
// these names come from Pods; the e2e test "existing workloads" has the other case.
func TestRefusedPodsAreAnnounced(t *testing.T) {
	c := install(t)
	c.audited(t, reviewFlag+"=true")
	c.reviewing(t, true)
	const name = "announced"
	namespace := c.namespace(t, nil)
	must(t, c.Create(t.Context(), deploymentOf(namespace, "good", "web:1")))
	must(t, c.Create(t.Context(), deploymentOf(namespace, "restarted", "latest")))
	must(t, c.Create(t.Context(), deploymentOf(namespace, "scaled", "latest")))
	template := podTemplate("latest")
	template.Labels = map[string]string{"app": "drained"}
	must(t, c.Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "drained"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}))
	await(t).Eventually(func() (int, error) {
		var pods corev1.PodList
		err := c.List(t.Context(), &pods, client.InNamespace(namespace))
		return len(pods.Items), err
	}).Should(Equal(4), "each workload has a Pod")

	c.enforce(t, newPolicy(name, namespace, onTemplates, acting(admissionregistrationv1.Audit), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.PodTemplates = nil
	}))
	announced := []string{
		"Deployment " + namespace + "/restarted",
		"Deployment " + namespace + "/scaled",
		"ReplicaSet " + namespace + "/drained",
	}
	want := "new Pods of 3 existing workloads would be denied, for example at their next restart, scaling or drain: " +
		strings.Join(announced, ", ")
	await(t).Eventually(func() []string { // the aggregated role takes a moment
		return c.warningsOfDeny(t, name)
	}).Should(ContainElement(want), "warnings about the policy")
	c.awaitReady(t, name)
	await(t).Eventually(func() ([]string, error) {
		p, err := c.policy(t.Context(), name)
		if err != nil || p.Status.Audit == nil {
			return nil, err
		}
		return p.Status.Audit.Workloads, nil
	}).Should(Equal(announced), "workloads in the status")

	for _, args := range [][]string{
		{"rollout", "restart", "deployment/good", "deployment/restarted"}, {"scale", "--replicas=2", "deployment/scaled"},
		{"delete", "pod", "-l", "app=drained", "--now"},
	} {
		if _, errOut, err := c.kubectl(t.Context(), "", append([]string{"-n", namespace}, args...)...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, errOut)
		}
	}
	await(t).Eventually(func() string {
		return cmp.Diff(announced, c.refusedWorkloads(t, namespace, name))
	}).Should(BeEmpty(), "workloads whose Pods are refused")
}

// warningsOfDeny makes the binding of a policy audit and then deny, and returns the warnings about that.
func (c *cluster) warningsOfDeny(t *testing.T, name string) []string {
	t.Helper()
	a := c.asker(t)
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, action := range []string{"Audit", "Deny"} {
		patch := fmt.Sprintf(`{"spec":{"bindings":[{"name":"all","validationActions":[%q]}]}}`, action)
		must(t, a.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.warnings)
}

// refusedWorkloads returns the workloads whose Pods a policy refused, as the Events of their controllers say.
func (c *cluster) refusedWorkloads(t *testing.T, namespace, policy string) (out []string) {
	t.Helper()
	var events corev1.EventList
	must(t, c.List(t.Context(), &events, client.InNamespace(namespace)))
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason != "FailedCreate" || !strings.Contains(e.Message, fmt.Sprintf("WebhookPolicy '%s'", policy)) {
			continue
		}
		workload := e.InvolvedObject.Kind + " " + namespace + "/" + e.InvolvedObject.Name
		if e.InvolvedObject.Kind == "ReplicaSet" {
			var set appsv1.ReplicaSet
			must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: e.InvolvedObject.Name}, &set))
			if owner := metav1.GetControllerOf(&set); owner != nil {
				workload = owner.Kind + " " + namespace + "/" + owner.Name
			}
		}
		out = append(out, workload)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
