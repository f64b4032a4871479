package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const impactPods = 512

// A policy that is applied, also as a dry run, gets a warning with the number of stored objects that it would deny.
func TestImpactOfPolicies(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	first := c.namespace(t, map[string]string{"impact": "test"})
	second := c.namespace(t, map[string]string{"impact": "test"})
	if first > second {
		first, second = second, first
	}
	c.createPods(t, first, second)
	on := func(name, expression string, edits ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
		return newPolicy(name, "", append([]func(*v1alpha1.WebhookPolicy){func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"impact": "test"}}
			p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{rule("", "pods", admissionregistrationv1.Update)}
			p.Spec.Validations = []v1alpha1.Validation{{Expression: expression}}
			p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
		}}, edits...)...)
	}
	web := fmt.Sprintf("37 of 512 existing Pods would be denied on their next change: %[1]s/p-000, %[1]s/p-001, %[1]s/p-002, …", first)
	tests := map[string]struct {
		policy *v1alpha1.WebhookPolicy
		want   []string
	}{
		"some": {policy: on("impact-some", `object.metadata.labels.tier != "web"`), want: []string{web}},
		"all": {policy: on("impact-all", "size(object.spec.containers) == 2"), want: []string{
			fmt.Sprintf("512 of 512 existing Pods would be denied on their next change: %[1]s/p-000, %[1]s/p-001, %[1]s/p-002, …", first),
		}},
		"errors that deny": {
			policy: on("impact-errors", `object.metadata.labels.number != ""`, failing(admissionregistrationv1.Fail)), want: []string{
				fmt.Sprintf("1 of 512 existing Pods would be denied on their next change: %s/p-511", second),
			},
		},
		"none":       {policy: on("impact-none", "object.metadata.name != ''")},
		"no denials": {policy: on("impact-audits", "false", acting(admissionregistrationv1.Audit))},
		"not readable": {policy: on("impact-secrets", "false", func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"secrets"}
		}), want: []string{
			`existing objects were not evaluated (Secrets): Ostiary may not list them: allow the verb list in a ClusterRole with the label admission.ostiary.dev/aggregate-to-audit: "true"`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := c.asker(t)
			await(t).Eventually(func() string { // the aggregated role takes a moment
				return cmp.Diff(tt.want, a.warningsOf(t, tt.policy.DeepCopy(), client.DryRunAll))
			}).Should(BeEmpty())
			if _, err := c.policy(t.Context(), tt.policy.Name); !apierrors.IsNotFound(err) {
				t.Fatalf("got %v, want nothing stored by a dry run", err)
			}
		})
	}
	a := c.asker(t)
	var p *v1alpha1.WebhookPolicy
	tries := 0
	await(t).Eventually(func() []string { // on a loaded machine, some Pods are not evaluated in time
		tries++
		p = on(fmt.Sprintf("impact-stored-%d", tries), `object.metadata.labels.tier != "web"`)
		name := p.Name
		t.Cleanup(func() { c.discard(name) })
		return a.warningsOf(t, p)
	}).Should(Equal([]string{web}), "warnings about a stored policy")
	change := func(edit func(*v1alpha1.WebhookPolicy)) (warnings []string, lists int) {
		mark := c.audit.mark(t)
		await(t).Eventually(func() error {
			stored, err := c.policy(t.Context(), p.Name)
			if err != nil {
				return err
			}
			edit(stored)
			a.mu.Lock()
			a.warnings = nil
			a.mu.Unlock()
			return a.Update(t.Context(), stored)
		}).Should(Succeed())
		return a.aboutStored(), c.podLists(t, mark)
	}
	if warnings, lists := change(func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations[0].Message = "no web" }); len(warnings) > 0 || lists > 0 {
		t.Errorf("another message: warnings %q and %d lists, want none", warnings, lists)
	}
	await(t).Eventually(func() []string {
		tries++
		warnings, lists := change(saying(fmt.Sprintf(`!(object.metadata.labels.tier in ["web", "%d"])`, tries)))
		if lists == 0 {
			t.Error("another expression: no lists")
		}
		return warnings
	}).Should(Equal([]string{web}), "warnings about another expression")
}

// warningsOf creates a policy and returns the warnings about stored objects.
func (a *asker) warningsOf(t *testing.T, p *v1alpha1.WebhookPolicy, options ...client.CreateOption) (out []string) {
	t.Helper()
	a.mu.Lock()
	a.warnings = nil
	a.mu.Unlock()
	must(t, a.Create(t.Context(), p, options...))
	return a.aboutStored()
}

// aboutStored returns the warnings about stored objects.
func (a *asker) aboutStored() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.warnings {
		if !strings.HasPrefix(w, "spec.") && !strings.HasPrefix(w, "not rehearsed") {
			out = append(out, w)
		}
	}
	return out
}

// podLists is the number of times that the manager listed Pods since a mark.
func (c *cluster) podLists(t *testing.T, since int64) (n int) {
	t.Helper()
	c.audit.mark(t)
	events, _ := c.audit.read(t, since)
	for _, e := range events {
		if e.byManager() && e.Verb == "list" && e.ObjectRef.Resource == "pods" {
			n++
		}
	}
	return n
}

// createPods creates Pods in two namespaces: 37 have the tier web, and one has no number.
func (c *cluster) createPods(t *testing.T, first, second string) {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.QPS = -1
	fast, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must(t, err)
	await(t).Eventually(func() error { // the account of Pods takes a moment
		for _, namespace := range []string{first, second} {
			if err := fast.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
				return err
			}
		}
		return nil
	}).Should(Succeed())
	var creating errgroup.Group
	creating.SetLimit(16)
	for i := range impactPods {
		pod := newPod(first)
		if i >= impactPods/2 {
			pod = newPod(second)
		}
		pod.GenerateName, pod.Name = "", fmt.Sprintf("p-%03d", i)
		pod.Labels = map[string]string{"tier": "db", "number": "n"}
		if i < 37 {
			pod.Labels["tier"] = "web"
		}
		if i == impactPods-1 {
			delete(pod.Labels, "number")
		}
		creating.Go(func() error { return fast.Create(t.Context(), pod) })
	}
	must(t, creating.Wait())
}
