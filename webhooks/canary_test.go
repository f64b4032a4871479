package webhooks

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestCanary(t *testing.T) {
	with := func(nonce string) string {
		return `{"metadata":{"annotations":{"admission.ostiary.dev/canary-nonce":"` + nonce + `"}}}`
	}
	tests := map[string]struct{ object, want string }{
		"a nonce":          {with("6d5f0b0e-6b0c"), "Ostiary was reached: 6d5f0b0e-6b0c"},
		"none":             {`{"metadata":{}}`, "Ostiary was reached: without a nonce"},
		"no object":        {"", "Ostiary was reached: without a nonce"},
		"something else":   {with("<script>"), "Ostiary was reached: without a nonce"},
		"more than enough": {with(strings.Repeat("a", 65)), "Ostiary was reached: without a nonce"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := canary(&admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(tt.object)}})
			if got.Allowed || got.Result.Code != 403 || got.Result.Message != tt.want {
				t.Errorf("got %+v, want a denial with %q", got.Result, tt.want)
			}
		})
	}
}
