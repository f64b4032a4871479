package integration

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

const servingSecret = "ostiary-serving"

func (c *cluster) secret(t *testing.T, name string) (*corev1.Secret, error) {
	t.Helper()
	s := &corev1.Secret{}
	return s, c.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: name}, s)
}

// Losing the certificate costs no request.
func TestServingSecretDeleted(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("certified", namespace))
	c.awaitDenied(t, namespace, "certified")
	before, err := c.secret(t, servingSecret)
	must(t, err)
	must(t, c.Delete(t.Context(), before))
	await(t).Eventually(func() error {
		if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "certified") {
			StopTrying(fmt.Sprintf("got %v, want a denial", err)).Now()
		}
		after, err := c.secret(t, servingSecret)
		if err == nil && after.UID == before.UID {
			err = fmt.Errorf("secret %s is still there", servingSecret)
		}
		return err
	}).Should(Succeed())
	// New connections see the new certificate, and trust it.
	port := c.caller(t, c.carrier(t, "certified"))
	for range 5 {
		wantDenied(t, port, "v1", namespace)
		port.http.CloseIdleConnections()
	}
	await(t).Consistently(func() bool { return deniedBy(c.probe(t.Context(), namespace, bad), "certified") }).Should(BeTrue())
}

// What another client writes into a configuration is repaired.
func TestConfigurationEditedByHand(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("edited", namespace))
	c.awaitDenied(t, namespace, "edited")
	original := c.carrier(t, "edited")
	delete(original.Annotations, registration.AnnotationTouched)
	ca, err := c.secret(t, "ostiary-ca")
	must(t, err)
	tests := map[string]func(*configuration){
		"another bundle": func(config *configuration) {
			config.Webhooks[0].ClientConfig.CABundle = plane.Config().CAData
		},
		"an empty bundle":   func(config *configuration) { config.Webhooks[0].ClientConfig.CABundle = nil },
		"another policy":    func(config *configuration) { *config.Webhooks[0].FailurePolicy = "Ignore" },
		"no webhook":        func(config *configuration) { config.Webhooks = nil },
		"a foreign webhook": func(config *configuration) { config.Webhooks = append(config.Webhooks, foreignWebhook(config)) },
		"no members":        func(config *configuration) { config.Annotations = nil },
		"no owners":         func(config *configuration) { config.OwnerReferences = nil },
		"no label":          func(config *configuration) { config.Labels = nil },
		"a selector that lets": func(config *configuration) {
			config.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
	}
	for name, edit := range tests {
		t.Run(name, func(t *testing.T) {
			must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
				config := c.carrier(t, "edited")
				edit(config)
				return c.Update(t.Context(), config)
			}))
			await(t).Eventually(func(g Gomega) {
				got := &configuration{}
				g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(original), got)).To(Succeed())
				g.Expect(got.Webhooks).To(Equal(original.Webhooks))
				delete(got.Annotations, registration.AnnotationTouched)
				g.Expect(got.Annotations).To(Equal(original.Annotations))
				g.Expect(got.Labels).To(Equal(original.Labels))
				g.Expect(got.OwnerReferences).To(Equal(original.OwnerReferences))
			}).Should(Succeed())
			c.awaitReady(t, "edited")
			c.awaitDenied(t, namespace, "edited")
		})
	}
	t.Run("API servers get one more event", func(t *testing.T) {
		await(t).Eventually(func() map[string]string {
			return c.carrier(t,
				"edited").Annotations
		}).Should(HaveKey(registration.AnnotationTouched))
		since := c.rest(t)
		got := c.carrier(t, "edited")
		if diff := cmp.Diff(original.Webhooks, got.Webhooks); diff != "" {
			t.Errorf("webhooks (-want +got):\n%s", diff)
		}
		c.wantNoWrites(t, since)
	})
	t.Run("the client that keeps doing it is named", func(t *testing.T) {
		await(t).Eventually(func() (metav1.Condition, error) {
			p, err := c.policy(t.Context(), "edited")
			return condition(p, v1alpha1.ConditionReady), err
		}).Should(And(HaveField("Reason", "Conflict"),
			HaveField("Message", And(ContainSubstring("integration.test"), ContainSubstring(original.Name)))))
		c.awaitEvent(t, "edited", "Warning", "Conflict")
	})
	after, err := c.secret(t, "ostiary-ca")
	must(t, err)
	if !bytes.Equal(ca.Data["tls.crt"], after.Data["tls.crt"]) {
		t.Error("the CA has changed")
	}
}

func foreignWebhook(config *configuration) admissionregistrationv1.ValidatingWebhook {
	out := *config.Webhooks[0].DeepCopy()
	out.Name = "foreign.example.com"
	return out
}
