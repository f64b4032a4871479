package plugins

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
)

// decideAboutImages starts an image policy backend for both sides, and gives the
// path of its kubeconfig.
func decideAboutImages(t *testing.T) string {
	t.Helper()
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/review" {
			http.Error(w, "not understood", http.StatusBadRequest)
			return
		}
		review.Status.Allowed = true
		for _, c := range review.Spec.Containers {
			switch {
			case strings.HasPrefix(c.Image, "denied"):
				review.Status = imagepolicyv1alpha1.ImageReviewStatus{Reason: fmt.Sprintf("%s in %s", c.Image, review.Spec.Namespace)}
			case strings.HasPrefix(c.Image, "silent"):
				review.Status = imagepolicyv1alpha1.ImageReviewStatus{}
			case strings.HasPrefix(c.Image, "broken"):
				http.Error(w, "broken", http.StatusInternalServerError)
				return
			case strings.HasPrefix(c.Image, "garbage"):
				fmt.Fprint(w, "<html>")
				return
			}
		}
		if review.Spec.Annotations["tests.image-policy.k8s.io/allow"] == "yes" {
			review.Status.Allowed = true
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(backend.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw}))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], "+
		"clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: a, user: {token: a}}]}", backend.URL+"/review", ca)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
