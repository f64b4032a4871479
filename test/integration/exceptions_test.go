package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/exceptions"
)

// exceptable permits exceptions from the validation of a policy, in any number of namespaces.
func exceptable(maxDuration ...int64) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations[0].Name = "only-good"
		p.Spec.Exceptions = &v1alpha1.Exceptions{}
		for _, seconds := range maxDuration {
			p.Spec.Exceptions.MaxDurationSeconds = &seconds
		}
	}
}

// everywhere matches ConfigMaps named probe in every namespace.
func everywhere(p *v1alpha1.WebhookPolicy) {
	p.Spec.MatchConstraints.NamespaceSelector = nil
	p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"probe"}
}

// excepting makes an exception for the ConfigMap of probes.
func excepting(policy, namespace string, edits ...func(*v1alpha1.WebhookPolicyExceptionSpec)) *v1alpha1.WebhookPolicyException {
	e := &v1alpha1.WebhookPolicyException{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "e-"},
		Spec: v1alpha1.WebhookPolicyExceptionSpec{
			PolicyName:  policy,
			Validations: []string{"only-good"},
			Match:       []v1alpha1.ExceptionMatch{{Resources: []string{"configmaps"}, Names: []string{"probe"}}},
			Reason:      "a test",
		},
	}
	for _, edit := range edits {
		edit(&e.Spec)
	}
	return e
}

func until(end time.Time) func(*v1alpha1.WebhookPolicyExceptionSpec) {
	return func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.ExpirationTime = new(metav1.NewTime(end)) }
}

// awaitActive waits until the condition Active of an exception has a reason.
func (c *cluster) awaitActive(
	t *testing.T, e *v1alpha1.WebhookPolicyException, want metav1.ConditionStatus, reason string,
) metav1.Condition {
	t.Helper()
	var got metav1.Condition
	await(t).Eventually(func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
			return err
		}
		got = metav1.Condition{}
		if found := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionActive); found != nil {
			got = *found
		}
		if got.Status != want || got.Reason != reason || e.Status.ObservedGeneration != e.Generation {
			return fmt.Errorf("Active is %q (%s: %s), want %s (%s)", got.Status, got.Reason, got.Message, want, reason)
		}
		return nil
	}).Should(Succeed())
	return got
}

// An exception lets the objects of its namespace pass, and no others.
func TestExceptions(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace, other := c.namespace(t, nil), c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable", "", exceptable(), everywhere))
	c.awaitDenied(t, namespace, "exceptable")
	e := excepting("exceptable", namespace)
	c.create(t, e)
	got := c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	const want = "every replica applies the exception, which has no end"
	if got.Message != want {
		t.Errorf("message %q, want %q", got.Message, want)
	}
	must(t, c.probe(t.Context(), namespace, bad))
	if err := c.probe(t.Context(), other, bad); !deniedBy(err, "exceptable") {
		t.Errorf("another namespace: got %v, want a denial", err)
	}
	named := configMap(namespace, bad)
	named.Name = "probe-evil"
	c.enforce(t, newPolicy("exceptable-too", namespace, exceptable()))
	if err := c.Create(t.Context(), named, client.DryRunAll); !deniedBy(err, "exceptable-too") {
		t.Errorf("another policy: got %v, want a denial", err)
	}
	if n := m.series(t, `ostiary_policy_requests_total{decision="excepted",operation="CREATE",policy="exceptable"}`); n == 0 {
		t.Error("no request is counted")
	}
	await(t).Eventually(func() (int64, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(e), e)
		return e.Status.Used, err
	}).Should(BeNumerically(">", 0))
	if e.Status.LastUsedTime == nil {
		t.Error("lastUsedTime is not set")
	}
	must(t, c.Delete(t.Context(), e))
	c.awaitDenied(t, namespace, "exceptable")
}

// One of the cluster kind covers cluster-scoped objects, and nothing in a namespace.
func TestExceptionsOfTheCluster(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-cluster", namespace, exceptable()))
	c.awaitDenied(t, namespace, "exceptable-cluster")
	e := &v1alpha1.ClusterWebhookPolicyException{
		ObjectMeta: metav1.ObjectMeta{Name: "exceptable-cluster"}, Spec: excepting("exceptable-cluster", "").Spec,
	}
	c.create(t, e)
	await(t).Eventually(func() (string, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(e), e)
		if found := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionActive); found != nil {
			return found.Reason, err
		}
		return "", err
	}).Should(Equal(exceptions.ReasonApplied))
	if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "exceptable-cluster") {
		t.Errorf("an object of a namespace: got %v, want a denial", err)
	}
}

// A finalizer, which everyone may add who may change exceptions, does not prolong a deleted exception.
func TestExceptionsWithFinalizers(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-kept", namespace, exceptable()))
	c.awaitDenied(t, namespace, "exceptable-kept")
	e := excepting("exceptable-kept", namespace)
	e.Finalizers = []string{"example.com/keep"}
	c.create(t, e)
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	must(t, c.probe(t.Context(), namespace, bad))
	must(t, c.Delete(t.Context(), e))
	c.awaitDenied(t, namespace, "exceptable-kept")
	c.awaitActive(t, e, metav1.ConditionFalse, "Deleting")
	e.Finalizers = nil
	must(t, c.Update(t.Context(), e))
}

// The status says why an exception has no effect, and it has none.
func TestExceptionsWithoutEffect(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t,
		newPolicy("exceptable-not", namespace, exceptable(), func(p *v1alpha1.WebhookPolicy) { p.Spec.Exceptions = nil }),
		newPolicy("exceptable-hour", namespace, exceptable(3600)))
	now := time.Now()
	hour := until(now.Add(time.Hour))
	for name, tc := range map[string]struct {
		exception *v1alpha1.WebhookPolicyException
		want      string
	}{
		"no policy":            {excepting("exceptable-none", namespace), "PolicyNotFound"},
		"no exceptions":        {excepting("exceptable-not", namespace), "NoExceptionsAllowed"},
		"no end":               {excepting("exceptable-hour", namespace), "NoExpirationTime"},
		"too long":             {excepting("exceptable-hour", namespace, until(now.Add(2*time.Hour))), "ExceedsMaxDuration"},
		"ended":                {excepting("exceptable-hour", namespace, until(now.Add(-time.Second))), "Expired"},
		"another validation":   {excepting("exceptable-hour", namespace, hour, naming("only-bad")), "UnknownValidation"},
		"a wrong condition":    {excepting("exceptable-hour", namespace, hour, provided("request.dryRun")), "InvalidCondition"},
		"a condition of a map": {excepting("exceptable-hour", namespace, hour, provided("{'a': 1}")), "InvalidCondition"},
	} {
		t.Run(name, func(t *testing.T) {
			c.create(t, tc.exception)
			c.awaitActive(t, tc.exception, metav1.ConditionFalse, tc.want)
		})
	}
	c.awaitDenied(t, namespace, "exceptable-hour")
	c.awaitDenied(t, namespace, "exceptable-not")
}

func naming(validations ...string) func(*v1alpha1.WebhookPolicyExceptionSpec) {
	return func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Validations = validations }
}

func provided(condition string) func(*v1alpha1.WebhookPolicyExceptionSpec) {
	return func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Condition = condition }
}

// An exception ends at its second, without a write.
func TestExceptionsEnd(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-end", namespace, exceptable(3600)))
	c.awaitDenied(t, namespace, "exceptable-end")
	end := time.Now().Add(10 * time.Second).Truncate(time.Second)
	e := excepting("exceptable-end", namespace, until(end))
	c.create(t, e)
	passed := false
	for time.Now().Before(end) {
		sent := time.Now()
		err := c.probe(t.Context(), namespace, bad)
		passed = passed || err == nil
		if passed && !deniedBy(err, "exceptable-end") && err != nil {
			t.Fatalf("%s before the end: %v", end.Sub(sent), err)
		}
		time.Sleep(interval)
	}
	if !passed {
		t.Error("no request passed before the end")
	}
	if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "exceptable-end") {
		t.Errorf("after the end: got %v, want a denial", err)
	}
	c.awaitActive(t, e, metav1.ConditionFalse, "Expired")
}

// A day before the end there is one warning.
func TestExceptionsEndSoon(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-soon", namespace, exceptable()))
	e := excepting("exceptable-soon", namespace, until(time.Now().Add(24*time.Hour+4*time.Second)))
	short := excepting("exceptable-soon", namespace, until(time.Now().Add(time.Hour)))
	c.create(t, e)
	c.create(t, short)
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonEndsSoon)
	c.awaitActive(t, short, metav1.ConditionTrue, exceptions.ReasonApplied)
	await(t).Eventually(func() ([]string, error) {
		var list eventsv1.EventList
		err := c.List(t.Context(), &list, client.InNamespace(namespace))
		var names []string
		for i := range list.Items {
			if list.Items[i].Reason == exceptions.ReasonEndsSoon && list.Items[i].Type == corev1.EventTypeWarning {
				names = append(names, list.Items[i].Regarding.Name)
			}
		}
		return names, err
	}).Should(Equal([]string{e.Name}))
	await(t).Eventually(func() float64 { return m.series(t, "ostiary_exceptions_ending_soon") }).Should(Equal(1.0))
}

// No exception has an effect while the policy that guards them is missing or changed.
func TestExceptionsNeedTheirGuard(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-guard", namespace, exceptable()))
	e := excepting("exceptable-guard", namespace)
	c.create(t, e)
	t.Cleanup(func() { c.restoreGuard(t) })
	key := client.ObjectKey{Name: exceptions.GuardName}
	for name, attack := range map[string]func(t *testing.T){
		"policy deleted": func(t *testing.T) {
			must(t, c.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}))
		},
		"binding deleted": func(t *testing.T) {
			must(t, c.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}))
		},
		"binding audits": func(t *testing.T) {
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			must(t, c.Get(t.Context(), key, &binding))
			binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
			must(t, c.Update(t.Context(), &binding))
		},
		"policy skips a group": func(t *testing.T) {
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			must(t, c.Get(t.Context(), key, &policy))
			policy.Spec.MatchConditions = append(policy.Spec.MatchConditions, admissionregistrationv1.MatchCondition{
				Name: "not-us", Expression: "!('us' in request.userInfo.groups)",
			})
			must(t, c.Update(t.Context(), &policy))
		},
		"policy excludes objects": func(t *testing.T) {
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			must(t, c.Get(t.Context(), key, &policy))
			policy.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"check": "me"}}
			must(t, c.Update(t.Context(), &policy))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
			c.awaitAllowed(t, namespace)
			attack(t)
			c.awaitDenied(t, namespace, "exceptable-guard")
			c.awaitActive(t, e, metav1.ConditionFalse, exceptions.ReasonNotGuarded)
			if got := m.series(t, "ostiary_exceptions_in_effect"); got != 0 {
				t.Errorf("the metric is %v, want 0", got)
			}
			c.restoreGuard(t)
		})
	}
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	c.awaitAllowed(t, namespace)
}

// restoreGuard installs the guard again. An apply alone keeps what others have added.
func (c *cluster) restoreGuard(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	named := metav1.ObjectMeta{Name: exceptions.GuardName}
	for _, object := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named},
	} {
		must(t, client.IgnoreNotFound(c.Delete(ctx, object)))
	}
	must(t, c.applyManifests(ctx))
}

// The oldest 100 exceptions of a policy and a namespace have an effect.
func TestExceptionsTooMany(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-many", namespace, exceptable()))
	elsewhere := func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Match[0].Names = []string{"elsewhere"} }
	var first *v1alpha1.WebhookPolicyException
	for range 100 {
		first = excepting("exceptable-many", namespace, elsewhere)
		c.create(t, first)
	}
	c.awaitActive(t, first, metav1.ConditionTrue, exceptions.ReasonApplied)
	time.Sleep(time.Second) // until a creationTimestamp is younger
	last := excepting("exceptable-many", namespace)
	c.create(t, last)
	c.awaitActive(t, last, metav1.ConditionFalse, exceptions.ReasonTooMany)
	c.awaitDenied(t, namespace, "exceptable-many")
	must(t, c.Delete(t.Context(), first))
	c.awaitActive(t, last, metav1.ConditionTrue, exceptions.ReasonApplied)
	must(t, c.probe(t.Context(), namespace, bad))
}

// What has no room in the memory has no effect, and its status says so. Each condition counts 32 KiB.
func TestExceptionsLeftOut(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-left", namespace, exceptable()), newPolicy("exceptable-left-too", namespace, exceptable()))
	var last *v1alpha1.WebhookPolicyException
	for i := range 130 {
		policy := []string{"exceptable-left", "exceptable-left-too"}[i%2]
		last = excepting(policy, namespace, provided(fmt.Sprintf("object.data.size() == %d", i)))
		if i == 129 {
			time.Sleep(time.Second) // until its creationTimestamp is younger
		}
		c.create(t, last)
	}
	got := c.awaitActive(t, last, metav1.ConditionFalse, exceptions.ReasonTooMany)
	const want = "the older exceptions of the namespace use its share of 4 MiB of memory, or all together use 32 MiB: delete some"
	if got.Message != want {
		t.Errorf("message %q, want %q", got.Message, want)
	}
	if n := m.series(t, "ostiary_exceptions_left_out"); n == 0 {
		t.Error("no exception is left out")
	}
	must(t, c.DeleteAllOf(t.Context(), &v1alpha1.WebhookPolicyException{}, client.InNamespace(namespace)))
	await(t).Eventually(func() float64 { return m.series(t, "ostiary_exceptions_left_out") }).Should(Equal(0.0))
}

// A condition that costs too much excepts nothing, and others are not affected.
func TestExceptionsWithASlowCondition(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("exceptable-slow", namespace, exceptable()))
	const ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
	nested := "true"
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		nested = ten + ".all(" + name + ", " + nested + ")"
	}
	e := excepting("exceptable-slow", namespace, provided(nested))
	c.create(t, e)
	c.awaitActive(t, e, metav1.ConditionTrue, exceptions.ReasonApplied)
	if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "exceptable-slow") {
		t.Errorf("got %v, want a denial", err)
	}
	must(t, c.probe(t.Context(), namespace, good))
}
