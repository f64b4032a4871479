package webhooks

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// FuzzReview sends bodies to a handler whose evaluator decodes the objects and allows everything. No body causes a panic
// or an unknown code, and bodies that are reviews for the decoder of Kubernetes are answered with their UID.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		validReview(),
		strings.Replace(validReview(), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1),
		strings.Replace(validReview(), `"request"`, `"Request"`, 1),
		reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","object":null,"oldObject":{"a":[1.5,true,"\u00e9"]},"options":{}`),
		reviewOf(uidMember, uidMember), reviewOf(`"UID":"u"`), reviewOf(), "", "{}", "null", `{"request":null}`, "[[[[", "\xff", `{"a":1e400}`,
		validReview() + validReview(), validReview()[:100],
	} {
		f.Add([]byte(seed))
	}
	panicked := false
	s, err := New(Options{
		Address:        ":0",
		GetCertificate: newPair(f).get,
		Accepts:        acceptsAll,
		Log:            logr.Discard(),
		Evaluator:      decodeAll(&panicked),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := serve(s.Handler(), "/validate/group", string(body))
		if !slices.Contains([]int{http.StatusOK, http.StatusBadRequest}, w.Code) || panicked {
			t.Fatalf("%q: code %d: %s", body, w.Code, w.Body)
		}
		if w.Code != http.StatusOK {
			if w.Body.Len() > 1100 || strings.Contains(w.Body.String(), `"allowed"`) {
				t.Fatalf("%q: answer %s", body, w.Body)
			}
			return
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
			t.Fatalf("%q: answer %s: %v", body, w.Body, err)
		}
		if uid := wellFormed(body); answer.Response.UID == "" || uid != "" && uid != string(answer.Response.UID) {
			t.Fatalf("%q: the request with UID %q was answered under %q", body, uid, answer.Response.UID)
		}
	})
}

func decodeAll(panicked *bool) Evaluator {
	return evaluatorFunc(func(_ context.Context, _ registration.GroupKey, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		defer func() {
			if cause := recover(); cause != nil {
				*panicked = true
				panic(cause)
			}
		}()
		for _, raw := range [][]byte{r.Object.Raw, r.OldObject.Raw, r.Options.Raw} {
			if raw == nil {
				continue
			}
			_, _ = unstructuredjson.Decode(raw) // it may be invalid JSON
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
}

// wellFormed returns the UID of the review that Kubernetes' own decoder finds in body, or nothing if it is none.
func wellFormed(body []byte) string {
	var review struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Request    *struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if utiljson.Unmarshal(body, &review) != nil || review.Request == nil {
		return ""
	}
	if review.Kind != "AdmissionReview" || !strings.HasPrefix(review.APIVersion, "admission.k8s.io/v1") {
		return ""
	}
	return review.Request.UID
}
