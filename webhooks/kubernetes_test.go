package webhooks

import (
	"context"
	"net/url"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// clusterIP resolves every Service to an address that only the dialer knows, as a virtual address does.
type clusterIP struct{ dial dialer }

func (clusterIP) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: "192.0.2.1:443"}, nil
}

func (c clusterIP) ClientConfigFor(string) (*rest.Config, error) {
	return &rest.Config{Dial: c.dial}, nil
}

func (c clusterIP) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return &rest.Config{Dial: c.dial}, nil
}

// kubernetesClient returns the client that API servers call the Service checks in the namespace shop with.
func kubernetesClient(t *testing.T, p pair, dial dialer) *rest.RESTClient {
	t.Helper()
	versions := []schema.GroupVersion{admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion}
	manager, err := webhook.NewClientManager(versions, admissionv1.AddToScheme, admissionv1beta1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	manager.SetAuthenticationInfoResolver(clusterIP{dial})
	manager.SetServiceResolver(clusterIP{dial})
	client, err := manager.HookClient(webhook.ClientConfig{
		Name: "checks", CABundle: p.pem,
		Service: &webhook.ClientConfigService{Name: "checks", Namespace: "shop", Path: "/validate/group", Port: 443},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// callV1 calls as the API server does for the creation of a pod.
func callV1(client *rest.RESTClient, uid types.UID, into *admissionv1.AdmissionReview) error {
	question := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: uid, Name: "shop", Operation: admissionv1.Create}}
	question.Request.Kind.Version, question.Request.Kind.Kind = "v1", "Pod"
	question.Request.Resource.Version, question.Request.Resource.Resource = "v1", "pods"
	question.Request.Object.Raw = []byte(`{"apiVersion":"v1","kind":"Pod"}`)
	return client.Post().Body(question).Timeout(30 * time.Second).Do(context.Background()).Into(into)
}
