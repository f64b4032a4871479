//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	workloads = "e2e-workloads"
	unlabeled = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}},
  template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: %[2]q}]}}}}`
	needsTeam = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: e2e-team}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: e2e-workloads}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}]
  matchConditions: [{name: changed, expression: 'request.operation == "CREATE" || object.spec != oldObject.spec'}]
  validations: [{expression: '"team" in object.metadata.?labels.orValue({})', message: add the label team}]
  bindings: [{name: all, validationActions: [%s]}]
  podTemplates: {}
`
)

// testExistingWorkloads lets a policy begin to deny while Deployments violate it. A restart is denied at the
// Deployment. The Pods that scaling and a drained node need are refused, and the warning about the policy named their
// Deployments.
func (w *world) testExistingWorkloads(t *testing.T) {
	w.makeNamespace(t, workloads, nil)
	apply := func(text string) string {
		r := w.try(t, text, "-n", workloads, "apply", "-f", "-")
		if r.err != nil {
			t.Fatal(r)
		}
		return r.stderr
	}
	for _, name := range []string{"restarted", "scaled", "drained"} {
		apply(fmt.Sprintf(unlabeled, name, w.image))
	}
	eventually(t, func() error { // whether they run does not matter
		pods, err := w.client.CoreV1().Pods(workloads).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		isPending := func(p corev1.Pod) bool { return p.Spec.NodeName == "" }
		if len(pods.Items) != 3 || slices.ContainsFunc(pods.Items, isPending) {
			return fmt.Errorf("%d Pods, want one of each Deployment on the node", len(pods.Items))
		}
		return nil
	})
	apply(fmt.Sprintf(needsTeam, "Audit"))
	w.do(t, "", "wait", "whp/e2e-team", "--for=condition=Ready", "--timeout=3m")
	const announced = "Deployment e2e-workloads/drained, Deployment e2e-workloads/restarted, Deployment e2e-workloads/scaled"
	if warnings := apply(fmt.Sprintf(needsTeam, "Deny")); !strings.Contains(warnings, "new Pods of 3 existing workloads would be denied") ||
		!strings.Contains(warnings, announced) {
		t.Errorf("warnings about the policy: %s\nwant the workloads %s", warnings, announced)
	}
	w.do(t, "", "wait", "whp/e2e-team", "--for=condition=Ready", "--timeout=3m")
	if r := w.try(t, "", "-n", workloads, "rollout", "restart", "deployment/restarted"); !strings.Contains(r.stderr, "add the label team") {
		t.Errorf("kubectl rollout restart: %s", r)
	}
	w.do(t, "", "-n", workloads, "scale", "--replicas=2", "deployment/scaled")
	w.drain(t, "app=drained")
	eventually(t, func() error {
		events, err := w.client.CoreV1().Events(workloads).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		if err != nil {
			return err
		}
		refused := map[string]bool{}
		for _, e := range events.Items {
			name, _, _ := strings.Cut(e.InvolvedObject.Name, "-")
			refused[name] = refused[name] || strings.Contains(e.Message, "add the label team")
		}
		if len(refused) != 2 || !refused["scaled"] || !refused["drained"] {
			return fmt.Errorf("refused Pods of %v, want those of scaled and drained", refused)
		}
		return nil
	})
	w.do(t, "", "delete", "whp/e2e-team")
}

// drain evicts the Pods of a selector from their nodes.
func (w *world) drain(t *testing.T, selector string) {
	t.Helper()
	list, err := w.client.CoreV1().Pods(workloads).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("Pods of %s: %v, %d found", selector, err, len(list.Items))
	}
	node := list.Items[0].Spec.NodeName
	w.do(t, "", "drain", node, "--pod-selector="+selector, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m")
	w.do(t, "", "uncordon", node)
}
