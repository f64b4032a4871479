package images

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// The cases of this file are those of the native plugin's own tests, with the
// answers that it gives.

// service is the backend of those tests: it allows a review that begins with the
// image good, and refuses one in which there is the image bad.
type service struct {
	*httptest.Server
	code, asked      atomic.Int32
	allow            atomic.Bool
	auditAnnotations map[string]string
	last             atomic.Pointer[imagepolicyv1alpha1.ImageReview]
}

func newService(t *testing.T, clients *x509.CertPool) *service {
	s := &service{}
	s.code.Store(http.StatusOK)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.review))
	if clients != nil {
		s.TLS = &tls.Config{ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *service) review(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, "not understood", http.StatusBadRequest)
		return
	}
	s.last.Store(review.DeepCopy())
	if code := int(s.code.Load()); code != http.StatusOK {
		http.Error(w, "HTTP Error", code)
		return
	}
	allowed := s.allow.Load() || review.Spec.Containers[0].Image == "good"
	for _, c := range review.Spec.Containers {
		allowed = allowed && c.Image != "bad"
	}
	review.Status = imagepolicyv1alpha1.ImageReviewStatus{Allowed: allowed, AuditAnnotations: s.auditAnnotations}
	if !allowed {
		review.Status.Reason = "not allowed"
	}
	_ = json.NewEncoder(w).Encode(review)
}

// host trusts the service and presents the client's certificate, if there is one.
func (s *service) host(clientPEM, keyPEM []byte) policy.Environment {
	return policy.Environment{Images: known{[]byte(config(s.URL, s.trusted(), credentials(clientPEM, keyPEM)))}}
}

func (s *service) trusted() string {
	return "certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func credentials(clientPEM, keyPEM []byte) string {
	if clientPEM == nil {
		return ""
	}
	return fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", base64.StdEncoding.EncodeToString(clientPEM),
		base64.StdEncoding.EncodeToString(keyPEM))
}

// client is a certificate that signs itself.
func client(t *testing.T) (pool *x509.CertPool, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return pool, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestNativeTLS(t *testing.T) {
	trusted, certPEM, keyPEM := client(t)
	unrelated, _, _ := client(t)
	tests := map[string]struct {
		clients          *x509.CertPool
		shown, untrusted bool
		plain            bool
		want             string
	}{
		"TLS setup between client and server":                     {clients: trusted, shown: true},
		"server does not require client auth":                     {},
		"server does not require client auth, client provides it": {shown: true},
		"client does not trust server": {
			shown:     true,
			untrusted: true,
			want:      "the certificate of the image policy backend is not trusted",
		},
		"server does not trust client": {
			clients: unrelated,
			shown:   true,
			want:    "unexpected response of the image policy backend",
		},
		"server is using insecure connection, which is not supported": {plain: true, want: "server: must be an https URL"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newService(t, tc.clients)
			ca, user, url := s.trusted(), "", s.URL
			if tc.untrusted {
				ca = ""
			}
			if tc.shown {
				user = credentials(certPEM, keyPEM)
			}
			if tc.plain {
				url = strings.Replace(url, "https:", "http:", 1)
			}
			host := policy.Environment{Images: known{[]byte(config(url, ca, user))}}
			spec := fmt.Sprintf(settings, false)
			s.allow.Store(true)
			got := plugintest.Ask(t, spec, plugintest.Request{Object: pod("x")}, host)
			if (got.Code != 0) != (tc.want != "") || !strings.Contains(got.Message, tc.want) {
				t.Errorf("allowing all: %d %q, want %q", got.Code, got.Message, tc.want)
			}
			s.allow.Store(false)
			if got := plugintest.Ask(t, spec, plugintest.Request{Object: pod("x")}, host); got.Code == 0 {
				t.Error("refusing all: it is allowed")
			}
		})
	}
}

// TestNativeCache checks that decisions are cached and errors are not.
func TestNativeCache(t *testing.T) {
	s := newService(t, nil)
	s.allow.Store(true)
	group, p := plugintest.Compile(t, fmt.Sprintf(settings, false))
	for i, step := range []struct {
		image     string
		code      int32
		want      int32
		wantAsked bool
	}{
		{"test", 500, 403, true}, {"test", 404, 403, true}, {"test", 403, 403, true}, {"test", 401, 403, true},
		{"test", 200, 0, true}, {"test", 500, 0, false},
		{"test2", 500, 403, true}, {"test2", 200, 0, true}, {"test2", 500, 0, false},
	} {
		s.code.Store(step.code)
		before := s.asked.Load()
		got := plugintest.Put(t, group, p, plugintest.Request{Object: pod(step.image)}, s.host(nil, nil))
		if asked := s.asked.Load() > before; got.Code != step.want || asked != step.wantAsked {
			t.Errorf("step %d: %d %q, asked: %t; want %+v", i, got.Code, got.Message, asked, step)
		}
	}
}

func TestNativeContainerCombinations(t *testing.T) {
	const ephemeral = "ephemeralcontainers"
	type images = []string
	tests := map[string]struct {
		containers, init, ephemeral images
		subresource                 string
		operation                   admissionv1.Operation
		wantRefused                 bool
	}{
		"single container allowed":            {containers: images{"good"}},
		"single container denied":             {containers: images{"bad"}, wantRefused: true},
		"one good container, one bad":         {containers: images{"good", "bad"}, wantRefused: true},
		"multiple good containers":            {containers: images{"good", "good"}},
		"multiple bad containers":             {containers: images{"bad", "bad"}, wantRefused: true},
		"good container, bad init container":  {containers: images{"good"}, init: images{"bad"}, wantRefused: true},
		"bad container, good init container":  {containers: images{"bad"}, init: images{"good"}, wantRefused: true},
		"good container, good init container": {containers: images{"good"}, init: images{"good"}},
		"bad ephemeral container when updating ephemeralcontainers": {
			containers: images{"good"}, init: images{"good"}, ephemeral: images{"bad"}, subresource: ephemeral,
			operation: admissionv1.Update, wantRefused: true,
		},
		"bad ephemeral container when updating the others": {
			containers: images{"good"},
			init:       images{"good"},
			ephemeral:  images{"bad"},
			operation:  admissionv1.Update,
		},
		"bad container, good ephemeral container when updating ephemeralcontainers": {
			containers: images{"bad"}, ephemeral: images{"good"}, subresource: ephemeral, operation: admissionv1.Update,
		},
		"good ephemeral container": {ephemeral: images{"good"}, subresource: ephemeral, operation: admissionv1.Update},
	}
	list := func(images []string) string {
		out := "["
		for _, image := range images {
			out += "{name: a, image: " + image + "},"
		}
		return out + "]"
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			r := plugintest.Request{Operation: tc.operation, Subresource: tc.subresource,
				Object: plugintest.Pod(fmt.Sprintf("{containers: %s, initContainers: %s, ephemeralContainers: %s}",
					list(tc.containers), list(tc.init), list(tc.ephemeral)))}
			if tc.operation == admissionv1.Update {
				r.OldObject = r.Object
			}
			got := plugintest.Ask(t, fmt.Sprintf(settings, false), r, s.host(nil, nil))
			want := ""
			if tc.wantRefused {
				want = `pods "web" is forbidden: image policy webhook backend denied one or more images: not allowed`
			}
			if got.Message != want {
				t.Errorf("%q, want %q", got.Message, want)
			}
		})
	}
}

func TestNativeDefaultAllow(t *testing.T) {
	for _, image := range []string{"good", "bad"} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%t", image, open), func(t *testing.T) {
				s := newService(t, nil)
				s.code.Store(http.StatusInternalServerError)
				got := plugintest.Ask(t, fmt.Sprintf(settings, open), plugintest.Request{Object: pod(image)}, s.host(nil, nil))
				if (got.Code == 0) != open || (got.Annotations["p.failed-open"] == "true") != open {
					t.Errorf("%d %q, annotations %v", got.Code, got.Message, got.Annotations)
				}
			})
		}
	}
}

func TestNativeAnnotationFiltering(t *testing.T) {
	tests := map[string]struct{ annotations, want map[string]string }{
		"all annotations filtered out": {map[string]string{"test": "test", "another": "annotation", "": ""}, nil},
		"image-policy annotations allowed": {
			map[string]string{
				"my.image-policy.k8s.io/test":     "test",
				"other.image-policy.k8s.io/test2": "annotation",
				"test":                            "test",
				"another":                         "another",
				"":                                "",
			},
			map[string]string{"my.image-policy.k8s.io/test": "test", "other.image-policy.k8s.io/test2": "annotation"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			annotations, err := json.Marshal(tc.annotations)
			if err != nil {
				t.Fatal(err)
			}
			object := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: %s}, spec: {containers: [{name: a, image: good}]}}", annotations)
			if got := plugintest.Ask(t, fmt.Sprintf(settings, true), plugintest.Request{Object: object}, s.host(nil, nil)); got.Code != 0 {
				t.Fatalf("%d %q", got.Code, got.Message)
			}
			if diff := cmp.Diff(tc.want, s.last.Load().Spec.Annotations); diff != "" {
				t.Errorf("annotations that the backend sees (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNativeReturnedAnnotations(t *testing.T) {
	tests := map[string]struct {
		image    string
		returned map[string]string
		refused  bool
	}{
		"valid response annotations":  {image: "good", returned: map[string]string{"foo-test": "true", "bar-test": "false"}},
		"none returned":               {image: "good", returned: map[string]string{}},
		"nil annotations":             {image: "good"},
		"annotations for bad request": {image: "bad", returned: map[string]string{"foo-test": "false"}, refused: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			s.auditAnnotations = tc.returned
			got := plugintest.Ask(t, fmt.Sprintf(settings, true), plugintest.Request{Object: pod(tc.image)}, s.host(nil, nil))
			seen := maps.Clone(got.Annotations)
			maps.DeleteFunc(seen, func(key, _ string) bool { return !strings.HasSuffix(key, "-test") })
			want := map[string]string{}
			for key, value := range tc.returned {
				want["p."+key] = value
			}
			if (got.Code != 0) != tc.refused || !maps.Equal(seen, want) {
				t.Errorf("%d %q, annotations %v, want %v", got.Code, got.Message, seen, want)
			}
		})
	}
}
