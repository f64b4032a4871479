package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// startBackendOf starts the server that the policy of an example needs.
func (c *cluster) startBackendOf(t *testing.T, e example) {
	t.Helper()
	switch e.Backend {
	case "webhook":
		ca := newAuthority(t, nextYear())
		c.grant(t, "shop", "read-secret")
		c.store(t, "Secret", v1alpha1.ObjectKey{Namespace: "shop", Name: "checks-ca"}, map[string]string{"ca.crt": ca.pem})
		c.startShopChecks(t, ca)
	case "issued":
		f := c.startShopChecks(t, newAuthority(t, nextYear()))
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		c.mount(ctx, f, "shop")
	case "images":
		c.startImagePolicy(t)
	default:
		t.Fatalf("unknown backend %q", e.Backend)
	}
}

// startShopChecks starts the webhook behind the Service shop/checks of the documents, which has the port 443.
func (c *cluster) startShopChecks(t *testing.T, ca *authority) *foreign {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checks"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}
	c.create(t, s)
	address := net.JoinHostPort(s.Spec.ClusterIP, "443")
	probe, err := net.Listen("tcp", address)
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("the webhook of the document listens on port 443, which needs root: %v", err)
	}
	must(t, err)
	must(t, probe.Close())
	return startForeign(t, address, ca.leaf(t, "checks.shop.svc"))
}

// startImagePolicy starts a backend that denies images of the registry denied.example.com, and stores its kubeconfig.
func (c *cluster) startImagePolicy(t *testing.T) {
	t.Helper()
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, "invalid review", http.StatusBadRequest)
			return
		}
		review.Status.Allowed = true
		for _, c := range review.Spec.Containers {
			if strings.HasPrefix(c.Image, "denied.example.com/") {
				review.Status = imagepolicyv1alpha1.ImageReviewStatus{Reason: "the image has known vulnerabilities"}
			}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(backend.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw}))
	kubeconfig := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], "+
		"clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: a, user: {token: a}}]}", backend.URL, ca)
	at := v1alpha1.ObjectKey{Namespace: systemNamespace, Name: "ostiary-image-policy"}
	c.store(t, "Secret", at, map[string]string{"kubeconfig": kubeconfig})
	t.Cleanup(func() {
		_ = c.Delete(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}})
	})
}
