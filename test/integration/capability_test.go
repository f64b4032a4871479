package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// wrongPaths returns the addresses, with a wrong path, of a pod that does not know the
// right one.
func wrongPaths(t *testing.T, server *caller) map[string]*caller {
	t.Helper()
	u, err := url.Parse(server.url)
	must(t, err)
	capability, path := registration.SplitPath(u.Path)
	if capability == "" {
		t.Fatalf("no capability in %s", u)
	}
	to := func(path string) *caller { return &caller{http: server.http, url: u.Scheme + "://" + u.Host + path} }
	return map[string]*caller{"no capability": to(path), "a wrong capability": to("/" + strings.Repeat("a", len(capability)) + path)}
}

// wantNotFound sends a review n times. The answer says nothing but 404.
func (c *caller) wantNotFound(t *testing.T, body []byte, n int) {
	t.Helper()
	for range n {
		var status *statusError
		if _, err := c.ask(t.Context(), body); !errors.As(err, &status) || status.code != http.StatusNotFound || status.text != "no such path\n" {
			t.Fatalf("got %v, want 404: no such path", err)
		}
	}
}

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
	for name, stranger := range wrongPaths(t, server) {
		t.Run(name, func(t *testing.T) { stranger.wantNotFound(t, body, 300) })
	}
	for range 20 {
		answer, err := server.ask(t.Context(), body)
		must(t, err)
		if !answer.Response.Allowed {
			t.Fatalf("an API server's event is denied: %v", answer.Response.Result)
		}
	}
}

// Nor can it have the image backend asked, learn from an answer what a user may
// do, or set a condition of a policy. A caller that knows the path can.
func TestCallerWithoutCapabilityCausesNothing(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	asked := c.imageBackend(t)
	ignored := failing(admissionregistrationv1.Ignore)
	owned := `"metadata":{"name":"web","namespace":"` + namespace +
		`","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"a","uid":"b","blockOwnerDeletion":true}]}`
	pod := func(metadata string) []byte {
		return reviewOf(t, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods", namespace,
			`{"apiVersion":"v1","kind":"Pod",`+metadata+`,"spec":{"containers":[{"name":"a","image":"example.com/a:1"}]}}`)
	}
	owners := func(p *v1alpha1.WebhookPolicy) {
		plugging(v1alpha1.PluginOwnerReferencesPermissionEnforcement, "")(p)
		p.Spec.Plugin.Config = nil
	}
	var learned bool
	for name, tt := range map[string]struct {
		edit   func(*v1alpha1.WebhookPolicy)
		mutate bool
		body   []byte
		effect func() bool
	}{
		"asks-backend": {
			edit: plugging(v1alpha1.PluginImagePolicyWebhook,
				`{"imagePolicy":{"kubeConfigSecret":{"name":"ostiary-image-policy"}}}`),
			body:   pod(`"metadata":{"name":"web"}`),
			effect: func() bool { return asked.Load() > 0 },
		},
		"tells-of-users": {edit: owners, body: pod(owned), effect: func() bool { return learned }},
		"grows-if-asked": {edit: growing, mutate: true, body: review(t, "v1", namespace, good), effect: func() bool {
			return len(c.warnings(t, "grows-if-asked")) > 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.enforce(t, newPolicy(name, namespace, tt.edit, ignored))
			server := c.mutatingCaller
			if !tt.mutate {
				server = func(t *testing.T, policy string) *caller { return c.caller(t, c.carrier(t, policy)) }
			}
			knows := server(t, name)
			for _, stranger := range wrongPaths(t, knows) {
				stranger.wantNotFound(t, tt.body, 50)
			}
			if tt.effect() {
				t.Fatal("a caller that does not know the path had an effect")
			}
			await(t).Eventually(func() (bool, error) {
				answer, err := knows.ask(t.Context(), tt.body)
				learned = err == nil && answer.Response != nil && !answer.Response.Allowed
				return tt.effect(), err
			}).Should(gomega.BeTrue(), "a caller that knows the path has no effect: the test shows nothing")
		})
	}
}

// imageBackend allows all images, and counts how often it was asked.
func (c *cluster) imageBackend(t *testing.T) *atomic.Int64 {
	t.Helper()
	asked := new(atomic.Int64)
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true}}`)
	}))
	t.Cleanup(backend.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw}))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "ostiary-image-policy"},
		StringData: map[string]string{
			"kubeconfig": `{current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: ` +
				`{server: "` + backend.URL + `", certificate-authority-data: ` + ca + `}}]}`,
		},
	}
	must(t, c.Create(t.Context(), secret))
	t.Cleanup(func() { _ = c.Delete(context.Background(), secret) })
	return asked
}

func eventReview(t *testing.T) []byte {
	t.Helper()
	object, err := json.Marshal(&eventsv1.Event{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "events.k8s.io/v1",
			Kind:       "Event",
		}, ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "e"},
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
func (f *replicaGroup) awaitRefused(t *testing.T, called string) {
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
