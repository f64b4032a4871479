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

// canary denies a request with the nonce that its object carries, which proves to who sent it that it has come here.
// No policy is asked: the proof is about the way.
func canary(in *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(in.Object.Raw, &object); err != nil {
		object.Annotations = nil // said by the answer, which then has no nonce
	}
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: registration.CanaryMessage(nonce(object.Annotations[registration.CanaryNonce])),
	}}
}

// nonce repeats nothing but what can be one.
func nonce(text string) string {
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if text == "" || len(text) > maxNonce || strings.ContainsFunc(text, strange) {
		return "without a nonce"
	}
	return text
}
