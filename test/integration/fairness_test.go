package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// TestNamespaceWithManyParamsDoesNotDelayOthers has one tenant create many params, each of which is costly to evaluate, and
// then many objects at a time. With failurePolicy Ignore, a request of another tenant would pass without evaluation if it
// waited too long. All of them are denied.
func TestNamespaceWithManyParamsDoesNotDelayOthers(t *testing.T) {
	const params, parallel, requests = 400, 64, 30
	c := install(t)
	c.manager(t)
	greedy, other := c.namespace(t, nil), c.namespace(t, nil)
	c.mayRead(t, "", "configmaps")
	hundred := make([]string, 100)
	for i := range hundred {
		hundred[i] = strconv.Itoa(i)
	}
	numbers := "[" + strings.Join(hundred, ",") + "]"
	ignore := func(name, namespace, resource string, validation v1alpha1.Validation, change ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
		return newPolicy(name, namespace, append(change, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{resource}
			p.Spec.Validations = []v1alpha1.Validation{validation}
		})...)
	}
	costly := v1alpha1.Validation{
		Expression: "params.data.a != '' && " + numbers + ".all(i, " + numbers +
			".all(j, i * j < 10000 && object.metadata.name != ''))",
	}
	c.enforce(t,
		ignore("greedy-params", greedy, "services", costly, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			p.Spec.Bindings = []v1alpha1.Binding{{Name: "b",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				ParamRef: &admissionregistrationv1.ParamRef{
					Selector:                &metav1.LabelSelector{},
					ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
				}}}
		}),
		ignore("other", other, "serviceaccounts", v1alpha1.Validation{Expression: "object.metadata.name != 'bad'", Message: "bad name"}))
	bad := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "bad"}}
	await(t).Eventually(func() bool { return deniedBy(c.Create(t.Context(), bad.DeepCopy(), client.DryRunAll), "other") }).Should(BeTrue())

	config := rest.CopyConfig(c.config)
	config.QPS = -1
	tenant, err := client.New(config, client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
	must(t, err)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < params; i += 8 {
				param := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: fmt.Sprint("param-", i)},
					Data:       map[string]string{"a": "b"},
				}
				if err := tenant.Create(t.Context(), param); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var answered atomic.Int64
	for range parallel {
		group.Go(func() {
			for ctx.Err() == nil {
				service := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: "s"},
					Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				}
				if tenant.Create(ctx, service, client.DryRunAll) == nil {
					answered.Add(1)
				}
			}
		})
	}
	await(t).Eventually(answered.Load).Should(BeNumerically(">", 0), "requests of the greedy tenant are answered")
	for i := range requests {
		if err := c.Create(t.Context(), bad.DeepCopy(), client.DryRunAll); !deniedBy(err, "other") {
			t.Errorf("request %d of the other tenant: %v, want a denial", i, err)
		}
	}
	stop()
	group.Wait()
}
