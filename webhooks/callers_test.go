package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/authentication"
	"github.com/ostiary/ostiary/internal/registration"
)

// tokenOnly accepts one token, or the certificate with which it is called.
type tokenOnly struct {
	token string
	cert  *x509.Certificate
	err   error
}

func (a tokenOnly) Authenticate(r *http.Request) error {
	if a.cert != nil && len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].Equal(a.cert) {
		return nil
	}
	if r.Header.Get("Authorization") == "Bearer "+a.token {
		return nil
	}
	return a.err
}

func TestCallers(t *testing.T) {
	rejected := &authentication.RejectedError{Reason: authentication.ReasonToken, Text: "the bearer token is not accepted"}
	notLoaded := &authentication.RejectedError{Reason: authentication.ReasonNotLoaded, Text: "not loaded"}
	cases := map[string]struct {
		err             error
		token, path     string
		wantCode        int
		wantBody        string
		wantHeader      string // name: value
		wantReason      authentication.Reason
		wantEvaluations int
	}{
		"accepted": {err: rejected, token: "right", path: "/validate/group", wantCode: http.StatusOK, wantEvaluations: 1},
		"rejected": {
			err:        rejected,
			token:      "wrong",
			path:       "/validate/group",
			wantCode:   http.StatusUnauthorized,
			wantBody:   "the bearer token is not accepted\n",
			wantHeader: `Www-Authenticate: Bearer, Basic realm="ostiary"`,
			wantReason: authentication.ReasonToken,
		},
		"rejected in the review": {
			err:        rejected,
			token:      "wrong",
			path:       reviewPath,
			wantCode:   http.StatusUnauthorized,
			wantBody:   "the bearer token is not accepted\n",
			wantReason: authentication.ReasonToken,
		},
		"rejected where no path": {
			err:        rejected,
			token:      "wrong",
			path:       "/secret",
			wantCode:   http.StatusUnauthorized,
			wantBody:   "the bearer token is not accepted\n",
			wantReason: authentication.ReasonToken,
		},
		"not loaded": {
			err:        notLoaded,
			token:      "wrong",
			path:       "/validate/group",
			wantCode:   http.StatusServiceUnavailable,
			wantBody:   "not loaded\n",
			wantHeader: "Retry-After: 1",
			wantReason: authentication.ReasonNotLoaded,
		},
		"an error is no acceptance": {
			err:      errors.New("secret detail"),
			token:    "wrong",
			path:     "/validate/group",
			wantCode: http.StatusInternalServerError,
			wantBody: internalMessage + "\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry, evaluations := prometheus.NewRegistry(), 0
			s := start(t, Options{
				Registerer: registry, Authenticator: tokenOnly{token: "right", err: tc.err},
				Evaluator: evaluatorFunc(func(context.Context, registration.GroupKey, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
					evaluations++
					return &admissionv1.AdmissionResponse{Allowed: true}, nil
				}),
			})
			r, err := http.NewRequest(http.MethodPost, s.url(tc.path), strings.NewReader(validReview()))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", contentType)
			r.Header.Set("Authorization", "Bearer "+tc.token)
			response, err := s.client(t).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			header, value, _ := strings.Cut(tc.wantHeader, ": ")
			if response.StatusCode != tc.wantCode || tc.wantBody != "" && string(body) != tc.wantBody || response.Header.Get(header) != value {
				t.Errorf("answer %d, %q, %v; want %d, %q, %s", response.StatusCode, body, response.Header, tc.wantCode, tc.wantBody, tc.wantHeader)
			}
			if evaluations != tc.wantEvaluations || response.Close != (tc.wantCode != http.StatusOK) {
				t.Errorf("%d evaluations, closed %t; want %d, closed after a failure alone", evaluations, response.Close, tc.wantEvaluations)
			}
			for _, reason := range authentication.Reasons() {
				want := 0.0
				if reason == tc.wantReason {
					want = 1
				}
				if got := gather(t, registry)["ostiary_webhook_callers_rejected_total reason="+string(reason)]; got != want {
					t.Errorf("%v rejected for %s, want %v", got, reason, want)
				}
			}
		})
	}
}

// TestRejectedBodyIsNotRead announces bodies and does not send all of them: the answer and the end of the connection do
// not wait for the rest, and the server never answers 100 Continue.
func TestRejectedBodyIsNotRead(t *testing.T) {
	rejected := &authentication.RejectedError{Reason: authentication.ReasonNone, Text: "show a token"}
	options := map[string]struct {
		Options
		path, want string
	}{
		"no credential":      {Options{Authenticator: tokenOnly{token: "right", err: rejected}}, "/validate/group", "HTTP/1.1 401 Unauthorized"},
		"an unknown path":    {Options{}, "/unknown", "HTTP/1.1 404 Not Found"},
		"a wrong capability": {Options{Accepts: func(c string) bool { return c == "right" }}, "/validate/group", "HTTP/1.1 404 Not Found"},
	}
	for name, tc := range options {
		for body, beginning := range map[string]string{
			"100 bytes":         "Content-Length: 100\r\n\r\n{",
			"200 KiB":           "Content-Length: 204800\r\n\r\n{",
			"6 MiB":             "Content-Length: 6291456\r\n\r\n{",
			"28 MiB, not begun": "Content-Length: 29360128\r\n\r\n",
			"chunked":           "Transfer-Encoding: chunked\r\n\r\n100\r\n{",
			"chunked, no chunk": "Transfer-Encoding: chunked\r\n\r\n",
			"expected":          "Expect: 100-continue\r\nContent-Length: 6291456\r\n\r\n",
			"expected, chunked": "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
		} {
			t.Run(name+", "+body, func(t *testing.T) {
				s := start(t, tc.Options)
				c := dialTLS(t, s)
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s", tc.path, beginning)
				got, err := io.ReadAll(c)
				if err != nil {
					t.Fatalf("reading: %v", err)
				}
				if !strings.HasPrefix(string(got), tc.want) {
					t.Errorf("answer %q, want %s", got, tc.want)
				}
			})
		}
	}
}

// TestClientCertificateRequest checks that the Authenticator gets the unverified client certificate, and that the server
// requests none without an Authenticator.
func TestClientCertificateRequest(t *testing.T) {
	shown := newPair(t)
	call := func(s *running) (code int, asked bool) {
		client := s.client(t)
		client.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &shown.certificate, nil
		}
		return post(t, client, s.url("/validate/group"), validReview()).code, asked
	}
	rejected := &authentication.RejectedError{Reason: authentication.ReasonCertificate, Text: "no"}
	cases := map[string]struct {
		authenticator Authenticator
		wantCode      int
		wantAsked     bool
	}{
		"none needed": {nil, http.StatusOK, false},
		"accepted":    {tokenOnly{cert: shown.certificate.Leaf, err: rejected}, http.StatusOK, true},
		"rejected":    {tokenOnly{cert: newPair(t).certificate.Leaf, err: rejected}, http.StatusUnauthorized, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, asked := call(start(t, Options{Authenticator: tc.authenticator}))
			if code != tc.wantCode || asked != tc.wantAsked {
				t.Errorf("code %d, asked %t; want %d, %t", code, asked, tc.wantCode, tc.wantAsked)
			}
		})
	}
}
