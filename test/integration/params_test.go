package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Each change that Kubernetes tests with its own policies has an effect: of the params, of
// what refers to them, of the policy.
func TestEachChangeOfParamsHasAnEffect(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.mayRead(t, "", "resourcequotas")
	c.mayRead(t, "", "podtemplates")
	labelled := func(name, verdict string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"verdict": verdict}}
	}
	create := func(object client.Object) func() {
		return func() { must(t, c.Create(t.Context(), object)) }
	}
	remove := func(object client.Object) func() {
		return func() { must(t, c.Delete(t.Context(), object)) }
	}
	edit := func(change func(*v1alpha1.WebhookPolicySpec)) func() {
		return func() {
			c.change(t, "changes", func(p *v1alpha1.WebhookPolicy) { change(&p.Spec) })
		}
	}
	acts := func(actions ...admissionregistrationv1.ValidationAction) func() {
		return edit(func(s *v1alpha1.WebhookPolicySpec) { s.Bindings[0].ValidationActions = actions })
	}
	first, second := &corev1.ResourceQuota{ObjectMeta: labelled("first", good)}, &corev1.ResourceQuota{ObjectMeta: labelled("second", bad)}
	again := &corev1.ResourceQuota{ObjectMeta: labelled("second", good)}
	template := &corev1.PodTemplate{ObjectMeta: labelled("second", bad)}
	template.Template.Spec.Containers = []corev1.Container{{Name: "a", Image: "registry.test/a"}}
	must(t, c.Create(t.Context(), first))
	must(t, c.Create(t.Context(), second))
	policy := newPolicy("changes", namespace, readingParams(namespace, "first"))
	for _, step := range []struct {
		name              string
		do                func()
		wantGood, wantBad bool // are allowed
		wantReady         string
	}{
		{name: "a new policy", do: func() { c.apply(t, policy) }, wantGood: true},
		{name: "another paramRef", do: edit(func(s *v1alpha1.WebhookPolicySpec) { s.Bindings[0].ParamRef.Name = "second" }), wantBad: true},
		{name: "params are deleted", do: remove(second), wantReady: "ParamsNotFound: every matching request is denied, because ResourceQuota " +
			namespace + "/second does not exist at spec.bindings[0].paramRef: create it, or set parameterNotFoundAction: Allow"},
		{
			name:      "params are created again",
			do:        create(again),
			wantGood:  true,
			wantReady: "Enforced: enforced: requests that fail a validation are denied",
		},
		{name: "params change", do: func() {
			again.Labels["verdict"] = bad
			must(t, c.Update(t.Context(), again))
		}, wantBad: true},
		{name: "another paramKind, without params", do: edit(func(s *v1alpha1.WebhookPolicySpec) { s.ParamKind.Kind = "PodTemplate" })},
		{name: "params of this kind", do: create(template), wantBad: true},
		{name: "a binding without effect", do: acts(admissionregistrationv1.Audit), wantGood: true, wantBad: true},
		{name: "the binding denies again", do: acts(admissionregistrationv1.Deny), wantBad: true},
		{name: "the policy is deleted", do: func() { c.remove(t, "changes") }, wantGood: true, wantBad: true},
		{
			name:     "the policy is created again",
			do:       func() { c.apply(t, newPolicy("changes", namespace, readingParams(namespace, "first"))) },
			wantGood: true,
		},
	} {
		step.do()
		for verdict, want := range map[string]bool{good: step.wantGood, bad: step.wantBad} {
			await(t).Eventually(func() bool {
				err := c.probe(t.Context(), namespace, verdict)
				return want && err == nil || !want && deniedBy(err, "changes")
			}).Should(BeTrue(), "%s: a request that is %s; want it to be allowed: %t", step.name, verdict, want)
		}
		if step.wantReady == "" {
			continue
		}
		await(t).Eventually(func() (string, error) {
			p, err := c.policy(t.Context(), "changes")
			if err != nil {
				return "", err
			}
			ready := condition(p, v1alpha1.ConditionReady)
			return ready.Reason + ": " + ready.Message, nil
		}).Should(Equal(step.wantReady), step.name)
	}
}
