package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// selfSigned returns a certificate that is its own authority, and its bundle in base64.
func selfSigned(t *testing.T, name string, validFor time.Duration) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(validFor),
		DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, bundle
}

const probed = `
apiVersion: v1
kind: Namespace
metadata: {name: NAME}
---
apiVersion: v1
kind: Service
metadata: {namespace: NAME, name: hook}
spec: {ports: [{port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: NAME, name: hook-1, labels: {kubernetes.io/service-name: hook}}
addressType: IPv4
ports: [{name: "", port: PORT, protocol: TCP}]
endpoints: [{addresses: [192.0.2.1], conditions: {ready: true}, targetRef: {kind: Pod, namespace: NAME, name: hook-1}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME}
webhooks:
- name: hook.example.com
  clientConfig: {caBundle: BUNDLE, service: {namespace: NAME, name: hook}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [persistentvolumes]}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
`

// The doctor verifies the certificates that Pods serve, through the API server.
func TestDoctorProbesWebhooks(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	client := kubernetes.NewForConfigOrDie(cp.Config())
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: strings.NewReplacer()}
	startNode(t, client, "node")
	const year = 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		certificate string // its DNS name
		validFor    time.Duration
		other       bool // the bundle is another one
		closed      bool
		want        []string
	}{
		"verifies":   {certificate: "hook.verifies.svc", validFor: year},
		"other":      {certificate: "hook.other.svc", validFor: year, other: true, want: []string{"bundle-does-not-verify"}},
		"wrong-name": {certificate: "hook.default.svc", validFor: year, want: []string{"certificate-name"}},
		"closed":     {certificate: "hook.closed.svc", validFor: year, closed: true, want: []string{"handshake-failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			certificate, bundle := selfSigned(t, tc.certificate, tc.validFor)
			if tc.other {
				_, bundle = selfSigned(t, tc.certificate, tc.validFor)
			}
			port := "1" // nothing listens
			if !tc.closed {
				port = serveTLS(t, certificate, http.NotFoundHandler())
			}
			p.variables = strings.NewReplacer("NAME", name, "PORT", port, "BUNDLE", bundle)
			objects := p.parse(t, probed)
			t.Cleanup(func() { p.remove(t, objects) })
			p.plant(t, objects)
			startPod(t, client, name, "hook-1", "node")
			dump, err := cluster.Fetch(t.Context(), cp.Config(), func(err error) { t.Error(err) })
			must(t, err)
			cluster.Probe(t.Context(), cp.Config(), dump, func() {})
			var got []string
			for _, f := range doctor.Check(dump, time.Now()) {
				t.Logf("%s: %s", f.Check, f.Message)
				got = append(got, f.Check)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
