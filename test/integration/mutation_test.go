package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// mending makes good of what has no verdict; the validation refuses the rest.
func mending(p *v1alpha1.WebhookPolicy) {
	patching(`has(object.data.verdict) ? [] : [JSONPatch{op: "add", path: "/data/verdict", value: "good"}]`)(p)
	p.Spec.Validations = []v1alpha1.Validation{{Expression: `object.data.?verdict.orValue("") == "good"`, Message: "bad is not good"}}
}

func unsaid(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Data: map[string]string{"a": "b"}}
}

// Promise: mutations fix and validations guarantee, in one object.
func TestOnePolicyOfBothPhases(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("mends", namespace, mending))
	c.awaitDenied(t, namespace, "mends")
	object := unsaid(namespace)
	must(t, c.Create(t.Context(), object, client.DryRunAll))
	if object.Data["verdict"] != good {
		t.Errorf("data = %v, want it mended", object.Data)
	}

	out, errOut, err := c.kubectl(t.Context(), "", "get", "whp", "mends")
	must(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || len(strings.Fields(lines[0])) < 2 || strings.Fields(lines[0])[1] != "ACTIONS" ||
		strings.Fields(lines[1])[1] != "Mutate,Deny" {
		t.Errorf("kubectl get says:\n%s%s", out, errOut)
	}
	configs := c.carriers(t, "mends")
	if len(configs) != 2 || registration.PhaseOf(configs[0]) == registration.PhaseOf(configs[1]) {
		t.Errorf("it is carried by %v, want a configuration of each phase", configs)
	}
	// Beside a policy of the same groups each goes alone.
	c.enforce(t, newPolicy("mends-too", namespace, mending))
	c.remove(t, "mends")
	await(t).Eventually(func() error {
		for _, config := range c.carriers(t, "mends-too") {
			if diff := cmp.Diff([]string{"mends-too"}, registration.Members(config)); diff != "" {
				return fmt.Errorf("members of %s (-want +got):\n%s", config.GetName(), diff)
			}
		}
		return nil
	}).Should(Succeed())
	configs = c.carriers(t, "mends-too")
	c.remove(t, "mends-too")
	for _, config := range configs {
		await(t).Eventually(func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(config),
				registration.NewConfiguration(registration.PhaseOf(config))))
		}).Should(BeTrue(), "%s is still there", config.GetName())
	}
	c.awaitAllowed(t, namespace)
	object = unsaid(namespace)
	must(t, c.Create(t.Context(), object, client.DryRunAll))
	if object.Data["verdict"] != "" {
		t.Errorf("data = %v after the policy's end", object.Data)
	}
}

// carriers are the configurations that a policy's status names.
func (c *cluster) carriers(t *testing.T, policy string) []registration.Configuration {
	t.Helper()
	var out []registration.Configuration
	for _, ref := range c.awaitReady(t, policy).Status.Webhooks {
		config := registration.NewConfiguration(registration.PhaseValidate)
		if ref.Kind == "MutatingWebhookConfiguration" {
			config = registration.NewConfiguration(registration.PhaseMutate)
		}
		must(t, c.Get(t.Context(), client.ObjectKey{Name: ref.Configuration}, config))
		out = append(out, config)
	}
	return out
}

// Promise: never enforce by halves: without a manager neither phase lets anything by.
func TestBothPhasesFailClosed(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	closed, half, open := c.namespace(t, nil), c.namespace(t, nil), c.namespace(t, nil)
	onlyMutates := func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations = nil }
	c.enforce(t, newPolicy("both-closed", closed, mending), newPolicy("only-mutates", half, mending, onlyMutates),
		newPolicy("both-open", open, mending, failing(admissionregistrationv1.Ignore)))
	c.awaitDenied(t, closed, "both-closed")
	c.awaitDenied(t, open, "both-open")
	await(t).Eventually(func() string {
		object := unsaid(half)
		must(t, c.Create(t.Context(), object, client.DryRunAll))
		return object.Data["verdict"]
	}).Should(Equal(good))
	configs := c.carriers(t, "both-closed")
	m.kill()

	for _, namespace := range []string{closed, half} {
		if err := c.probe(t.Context(), namespace, good); !unreachable(err) {
			t.Errorf("got %v, want the API server's refusal", err)
		}
	}
	must(t, c.probe(t.Context(), open, bad))
	// The API server calls the mutating webhooks first; the validating one
	// closes by itself too.
	for _, config := range configs {
		for _, policy := range failurePolicies(config) {
			if policy != admissionregistrationv1.Fail {
				t.Errorf("%s has failurePolicy %s", config.GetName(), policy)
			}
		}
	}
	must(t, c.Delete(t.Context(), configs[0]))
	await(t).Eventually(func() error {
		return c.probe(t.Context(), closed,
			good)
	}).Should(MatchError(ContainSubstring("failed calling webhook")))
	c.manager(t)
	c.awaitReady(t, "both-closed")
	c.awaitDenied(t, closed, "both-closed")
	await(t).Eventually(func() string {
		object := unsaid(closed)
		if err := c.Create(t.Context(), object, client.DryRunAll); err != nil {
			return err.Error()
		}
		return object.Data["verdict"]
	}).Should(Equal(good))
}

func failurePolicies(config registration.Configuration) (out []admissionregistrationv1.FailurePolicyType) {
	switch config := config.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range config.Webhooks {
			out = append(out, *config.Webhooks[i].FailurePolicy)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range config.Webhooks {
			out = append(out, *config.Webhooks[i].FailurePolicy)
		}
	}
	return out
}

func ordered(order int32) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.Order = ptr.To(order) }
}

// appending adds a letter to what those before have written.
func appending(letter string) func(*v1alpha1.WebhookPolicy) {
	return patching(`[JSONPatch{op: "add", path: "/data/trace", value: object.data.?trace.orValue("") + "` + letter + `"}]`)
}

func (c *cluster) trace(t *testing.T, namespace string) func() (string, error) {
	return func() (string, error) {
		object := configMap(namespace, good)
		err := c.Create(t.Context(), object, client.DryRunAll)
		return object.Data["trace"], err
	}
}

// Promise: mutations run in their order, whatever the names are, and see what
// those before made.
func TestMutationsRunInOrder(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("order-z", namespace, appending("1"), ordered(10)), newPolicy("order-a", namespace, appending("3"), ordered(20)),
		newPolicy("order-b", namespace, appending("4"), ordered(20)), newPolicy("order-y", namespace, appending("2"), ordered(10), within(7)))
	// Those of one order and one webhook run by name; another webhook of the
	// same order may come before or after.
	await(t).Eventually(c.trace(t, namespace)).Should(Or(Equal("1234"), Equal("2134")))
	c.change(t, "order-z", ordered(30))
	await(t).Eventually(c.trace(t, namespace)).Should(Equal("2341"))
}

// Promise: with reinvocationPolicy IfNeeded, a policy sees the object again
// that another client has changed after it.
func TestMutationsAreInvokedAgain(t *testing.T) {
	c := install(t)
	c.manager(t)
	never, needed, undisturbed := c.namespace(t, nil), c.namespace(t, nil), c.namespace(t, nil)
	reinvoked := func(policy admissionregistrationv1.ReinvocationPolicyType) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) { p.Spec.ReinvocationPolicy = &policy }
	}
	c.enforce(t,
		newPolicy("again-never", never, appending("o"), ordered(10), reinvoked(admissionregistrationv1.NeverReinvocationPolicy)),
		newPolicy("again-needed", needed, appending("o"), ordered(10), reinvoked(admissionregistrationv1.IfNeededReinvocationPolicy)),
		newPolicy("again-undisturbed", undisturbed, appending("o"), ordered(10), reinvoked(admissionregistrationv1.IfNeededReinvocationPolicy)),
		// The second webhook, in both of the first two.
		newPolicy("after-never", never, appending("x"), ordered(900)),
		newPolicy("after-needed", needed, appending("x"), ordered(900)))
	await(t).Eventually(c.trace(t, never)).Should(Equal("ox"))
	await(t).Eventually(c.trace(t, needed)).Should(Equal("oxo"))
	await(t).Eventually(c.trace(t, undisturbed)).Should(Equal("o"))
}

// The API server's own plugins have read some fields of Pods before it calls webhooks:
// docs/policies/mutations.md says what a mutation of them does.
func TestMutationsOfFieldsThatPluginsHaveRead(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Value: 1000})
	for name, tt := range map[string]struct {
		expression string
		want       func(*corev1.Pod, error) bool
	}{
		"automountServiceAccountToken": {"Object{spec: Object.spec{automountServiceAccountToken: false}}", func(p *corev1.Pod, err error) bool {
			return err == nil && p.Spec.AutomountServiceAccountToken != nil && len(p.Spec.Volumes) == 1 && p.Spec.Volumes[0].Projected != nil
		}},
		"priorityClassName": {"Object{spec: Object.spec{priorityClassName: 'late'}}", func(_ *corev1.Pod, err error) bool {
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the integer value of priority (0) must not be provided in pod spec")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.enforce(t, newPolicy("late-"+strings.ToLower(name), namespace, applying(tt.expression), func(p *v1alpha1.WebhookPolicy) {
				p.Spec.MatchConstraints.ResourceRules[0] = rule("", "pods", admissionregistrationv1.Create)
				p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
			}))
			await(t).Eventually(func() error {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
				}
				if err := c.Create(t.Context(), pod, client.DryRunAll); !tt.want(pod, err) {
					return fmt.Errorf("got %+v, %w", pod.Spec, err)
				}
				return nil
			}).Should(Succeed())
		})
	}
}
