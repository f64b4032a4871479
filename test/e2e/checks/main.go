// Command checks is an external webhook, for the end-to-end tests:
// it refuses ConfigMaps with the key refuse. Its certificate is in a Secret that
// is mounted at /tls, whose changes it takes up.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const maxBody = 8 << 20

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /validate", validate)
	server := &http.Server{
		Addr: ":8443", Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair("/tls/tls.crt", "/tls/tls.key")
			return &certificate, err
		}},
	}
	fmt.Fprintln(os.Stderr, "checks:", server.ListenAndServeTLS("", ""))
	os.Exit(1)
}

func validate(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	var object corev1.ConfigMap
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("this is no review: %v", err), http.StatusBadRequest)
		return
	}
	if err := json.Unmarshal(review.Request.Object.Raw, &object); err != nil {
		http.Error(w, fmt.Sprintf("this is no ConfigMap: %v", err), http.StatusBadRequest)
		return
	}
	_, refused := object.Data["refuse"]
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !refused}
	if refused {
		review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: "checks refuse it"}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the caller may be gone
}
