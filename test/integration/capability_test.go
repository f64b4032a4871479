package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// A pod that reaches the webhook port and does not know the path cannot spend
// what EventRateLimit keeps for API servers.
func TestCallerWithoutCapabilitySpendsNothing(t *testing.T) {
	c := install(t)
	c.manager(t)
	c.enforce(t, &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "limited"}, Spec: v1alpha1.WebhookPolicySpec{
		AllowCriticalResources: true,
		FailurePolicy:          new(admissionregistrationv1.Ignore),
		Plugin: &v1alpha1.Plugin{Name: "EventRateLimit", Config: &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[{"type":"Server","qps":1,"burst":100}]}`)}},
	}})
	body := eventReview(t)
	server := c.caller(t, c.carrier(t, "limited"))
	u, err := url.Parse(server.url)
	must(t, err)
	capability, path := registration.SplitPath(u.Path)
	if capability == "" {
		t.Fatalf("no capability in %s", u)
	}
	for name, called := range map[string]string{"none": path, "a wrong one": "/" + strings.Repeat("a", len(capability)) + path} {
		attacker := &caller{http: server.http, url: u.Scheme + "://" + u.Host + called}
		for range 300 {
			var status *statusError
			if _, err := attacker.ask(t.Context(), body); !errors.As(err, &status) || status.code != http.StatusNotFound || status.text != "no such path\n" {
				t.Fatalf("capability %s: got %v, want 404: no such path", name, err)
			}
		}
	}
	for range 20 {
		answer, err := server.ask(t.Context(), body)
		must(t, err)
		if !answer.Response.Allowed {
			t.Fatalf("an API server's event is refused: %v", answer.Response.Result)
		}
	}
}

func eventReview(t *testing.T) []byte {
	t.Helper()
	object, err := json.Marshal(&eventsv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "e"},
	})
	must(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: reviewUID, Kind: metav1.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"},
			Resource:  metav1.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"},
			Namespace: metav1.NamespaceDefault, Name: "e", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
		},
	})
	must(t, err)
	return body
}

// awaitRefused waits until no replica accepts a path any more.
func (f *fleet) awaitRefused(t *testing.T, called string) {
	t.Helper()
	await(t).Eventually(func() error {
		caller := f.caller(t, f.carrier(t, "rotated"))
		caller.url = called
		for _, m := range f.members {
			var status *statusError
			if _, err := caller.at(t, m.webhook).ask(t.Context(), eventReview(t)); !errors.As(err, &status) || status.code != http.StatusNotFound {
				return errors.New("replica " + m.replica + " still accepts the path before")
			}
		}
		return nil
	}).Should(gomega.Succeed())
}
