package webhooks

import (
	"encoding/json"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

const maxNonce = 64

// canary denies a request with the nonce of its object, which proves to the sender that the request reached Ostiary. It
// evaluates no policy: only the connection is tested.
func canary(in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(in.Object.Raw, &object); err != nil {
		object.Annotations = nil // the answer then has no nonce
	}
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: registration.CanaryMessage(nonce(object.Annotations[registration.CanaryNonce])),
	}}
}

// nonce returns text if it can be a nonce, so that answers never repeat other input.
func nonce(text string) string {
	isInvalid := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if text == "" || len(text) > maxNonce || strings.ContainsFunc(text, isInvalid) {
		return "without a nonce"
	}
	return text
}
