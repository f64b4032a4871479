package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// authority is an external CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T, notAfter time.Time) *authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: rand.Text()}, NotBefore: notAfter.Add(-20 * 365 * 24 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	a := &authority{}
	a.cert, a.key = sign(t, template, nil, nil)
	a.pem = pemOf("CERTIFICATE", a.cert.Raw)
	return a
}

func sign(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert, key
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func (a *authority) keyPEM(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	must(t, err)
	return pemOf("PRIVATE KEY", der)
}

// leaf is a certificate for loopback and the names.
func (a *authority) leaf(t *testing.T, names ...string) *tls.Certificate {
	t.Helper()
	cert, key := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "foreign"}, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, a.key)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// foreign is an external webhook. It refuses bad ConfigMaps, and
// labels others in the mutating phase.
type foreign struct {
	server  *http.Server
	address string
	serving atomic.Pointer[tls.Certificate]
	version string // of AdmissionReview, the only one that it knows

	mu    sync.Mutex
	calls []string // operation and resource of each
}

const foreignVerdict = "the foreign webhook does not like it"

// startForeign serves on an address, host:port; "" is some port of loopback.
func startForeign(t *testing.T, address string, cert *tls.Certificate) *foreign {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	must(t, err)
	f := &foreign{version: "v1", address: listener.Addr().String()}
	f.serving.Store(cert)
	f.server = &http.Server{Handler: http.HandlerFunc(f.answer), ErrorLog: log.New(io.Discard, "", 0)}
	tlsListener := tls.NewListener(listener,
		&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.serving.Load(), nil
		}})
	go func() { _ = f.server.Serve(tlsListener) }() // until it is closed
	t.Cleanup(func() { _ = f.server.Close() })
	return f
}

// answer reads only what both versions of AdmissionReview have.
func (f *foreign) answer(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    struct {
			UID       string                      `json:"uid"`
			Operation string                      `json:"operation"`
			Resource  metav1.GroupVersionResource `json:"resource"`
			Object    struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Data     map[string]string `json:"data"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 4<<20)).Decode(&review); err != nil ||
		review.APIVersion != "admission.k8s.io/"+f.version {
		http.Error(w, "this is no AdmissionReview "+f.version, http.StatusBadRequest)
		return
	}
	q := review.Request
	f.mu.Lock()
	f.calls = append(f.calls, q.Operation+" "+schema.GroupResource{Group: q.Resource.Group, Resource: q.Resource.Resource}.String())
	f.mu.Unlock()
	response := map[string]any{"uid": q.UID, "allowed": q.Object.Data["verdict"] != bad}
	if response["allowed"] == false {
		response["status"] = map[string]any{"message": foreignVerdict, "code": http.StatusForbidden}
	} else if strings.HasPrefix(r.URL.Path, "/mutate") && q.Operation == "CREATE" {
		response["patchType"] = "JSONPatch"
		response["patch"] = []byte(`[{"op": "add", "path": "/metadata/labels", "value": {"by": "foreign"}}]`)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": "AdmissionReview", "response": response})
}

func (f *foreign) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// hostedBy makes a policy with a backend of one that newPolicy made.
func hostedBy(f *foreign, bundle string, edits ...func(*v1alpha1.Backend)) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = nil
		p.Spec.Backend = &v1alpha1.Backend{
			Type:                    v1alpha1.BackendValidating,
			URL:                     "https://" + f.address + "/validate",
			AdmissionReviewVersions: []string{f.version},
			SideEffects:             admissionregistrationv1.SideEffectClassNone,
			CABundle:                []byte(bundle),
		}
		for _, edit := range edits {
			edit(p.Spec.Backend)
		}
	}
}

// swap has the foreign webhook serve another certificate, on new connections
// from now on.
func (f *foreign) swap(cert *tls.Certificate) {
	f.serving.Store(cert)
	f.server.SetKeepAlivesEnabled(false) // closes those that are idle
	f.server.SetKeepAlivesEnabled(true)
}

// awaitForeign waits until the foreign webhook refuses bad requests.
func (c *cluster) awaitForeign(t *testing.T, namespace string) {
	t.Helper()
	await(t).Eventually(func() bool { return deniedByForeign(c.probe(t.Context(), namespace, bad)) }).Should(BeTrue(),
		"the foreign webhook denies")
}

func deniedByForeign(err error) bool {
	return err != nil && strings.Contains(err.Error(), foreignVerdict)
}

// bundleOf is the CA bundle that is registered for a policy.
func (c *cluster) bundleOf(ctx context.Context, name string) (string, error) {
	p, err := c.policy(ctx, name)
	if err != nil || len(p.Status.Webhooks) == 0 {
		return "", err
	}
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: p.Status.Webhooks[0].Configuration}, config); err != nil {
		return "", err
	}
	return string(config.Webhooks[0].ClientConfig.CABundle), nil
}

// documented is the block of YAML of a document that stands below the comment
// <!-- name -->.
func documented(t *testing.T, file, name string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	_, after, found := strings.Cut(string(text), "<!-- "+name+" -->\n```yaml\n")
	if !found {
		t.Fatalf("%s has no block %s", file, name)
	}
	block, _, _ := strings.Cut(after, "```\n")
	return block
}
