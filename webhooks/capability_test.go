package webhooks

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

// unread is a body that must not be read.
type unread struct{ read bool }

func (b *unread) Read([]byte) (int, error) { b.read = true; return 0, io.EOF }

// TestCapability calls with and without the secret segment of the path. A wrong
// one is answered as an unknown path is, before the body is read.
func TestCapability(t *testing.T) {
	const right, wrong = "abcdefghijklmnopqrstuvwxyz234567", "abcdefghijklmnopqrstuvwxyz234566"
	var logs lockedBuffer
	registry := prometheus.NewRegistry()
	evaluated := 0
	h := handlerOf(t, Options{
		Accepts: func(c string) bool { return c == right }, Log: logs.logger(10), Registerer: registry,
		Evaluator: evaluatorFunc(func(context.Context, registration.GroupKey, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			evaluated++
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}),
	})
	call := func(path string) (*httptest.ResponseRecorder, bool) {
		body := &unread{}
		r := httptest.NewRequest(http.MethodPost, path, body)
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w, body.read
	}
	unknown, _ := call("/unknown")
	for name, path := range map[string]string{
		"a group without":           "/validate/group",
		"a mutating group without":  "/mutate/group",
		"the review without":        "/validate-webhookpolicy",
		"a canary without":          "/canary/validate",
		"a wrong one":               "/" + wrong + "/validate/group",
		"a wrong one for a review":  "/" + wrong + "/validate-webhookpolicy",
		"a wrong one for a canary":  "/" + wrong + "/canary/mutate",
		"in upper case":             "/" + strings.ToUpper(right) + "/validate/group",
		"encoded":                   "/%61" + right[1:] + "/validate/group",
		"a prefix":                  "/" + right[:31] + "/validate/group",
		"longer":                    "/" + right + "a/validate/group",
		"twice":                     "/" + right + "/" + right + "/validate/group",
		"alone":                     "/" + right,
		"after the path":            "/validate/group/" + right,
		"in the query":              "/validate/group?capability=" + right,
		"the right one, other path": "/" + right + "/unknown",
	} {
		t.Run(name, func(t *testing.T) {
			got, read := call(path)
			if got.Code != unknown.Code || got.Code != http.StatusNotFound {
				t.Errorf("code %d, want 404", got.Code)
			}
			if diff := cmp.Diff(unknown.Body.String(), got.Body.String()); diff != "" {
				t.Errorf("body (-unknown path +got):\n%s", diff)
			}
			if diff := cmp.Diff(unknown.Header(), got.Header()); diff != "" {
				t.Errorf("header (-unknown path +got):\n%s", diff)
			}
			if read {
				t.Error("the body was read")
			}
		})
	}
	if evaluated != 0 {
		t.Errorf("%d requests were evaluated, want none", evaluated)
	}
	for _, path := range []string{"/validate/group", "/mutate/group", "/validate-webhookpolicy", "/canary/validate", "/canary/mutate"} {
		if w := serve(h, "/"+right+path, validReview()); w.Code != http.StatusOK {
			t.Errorf("%s with the capability: code %d, want 200: %s", path, w.Code, w.Body)
		}
	}
	if evaluated != 3 {
		t.Errorf("%d requests were evaluated, want 3", evaluated)
	}
	if strings.Contains(logs.String(), right) {
		t.Errorf("the log has the capability:\n%s", logs.String())
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if strings.Contains(family.String(), right) {
			t.Errorf("metric %s has the capability", family.GetName())
		}
	}
}
