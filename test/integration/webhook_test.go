package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// caller speaks to a manager's webhook port as an API server does.
type caller struct {
	http *http.Client
	url  string
}

// caller trusts what a configuration trusts, and calls what it names.
func (c *cluster) caller(t *testing.T, config *configuration) *caller {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.Webhooks[0].ClientConfig.CABundle) {
		t.Fatalf("configuration %s has no certificate in its caBundle", config.Name)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{http: &http.Client{Transport: transport, Timeout: 30 * time.Second}, url: *config.Webhooks[0].ClientConfig.URL}
}

// at is the same caller for a manager at another address, whose certificate it
// expects to be for the same name.
func (c *caller) at(t *testing.T, address string) *caller {
	t.Helper()
	u, err := url.Parse(c.url)
	must(t, err)
	u.Host = address
	return &caller{http: c.http, url: u.String()}
}

func (c *caller) do(ctx context.Context, method, contentType string, body []byte) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+"?timeout=5s", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp, answer, err
}

// ask sends a review and gives the response; a status other than 200 is a *statusError.
func (c *caller) ask(ctx context.Context, body []byte) (*admissionv1.AdmissionReview, error) {
	resp, answer, err := c.do(ctx, http.MethodPost, "application/json", body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{code: resp.StatusCode, text: string(answer)}
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(answer, review); err != nil || review.Response == nil {
		return nil, &statusError{code: http.StatusOK, text: fmt.Sprintf("no review: %v: %s", err, answer)}
	}
	return review, nil
}

type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.text) }

const reviewUID = "6d5f0b0e-6b0c-4f5e-9a37-2f3b1e3a9f11"

// review asks about a ConfigMap that a probe would create.
func review(t *testing.T, version, namespace, verdict string) []byte {
	t.Helper()
	sent := configMap(namespace, verdict)
	sent.APIVersion, sent.Kind = "v1", "ConfigMap"
	object, err := json.Marshal(sent)
	must(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/" + version, Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       reviewUID,
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Namespace: namespace,
			Name:      "probe",
			Operation: admissionv1.Create,
			Object:    runtime.RawExtension{Raw: object},
		},
	})
	must(t, err)
	return body
}
