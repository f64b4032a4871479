package certificates

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ostiary/ostiary/internal/pki"
)

// sourceName is the Secret of the external issuer.
const sourceName = "external"

// issuer is an external issuer.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
}

func newIssuer(t *testing.T, name string, now time.Time) *issuer {
	key := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	i := &issuer{t: t, key: key, now: now}
	i.cert = i.certify(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, key.Public())
	return i
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (i *issuer) certify(template *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	i.t.Helper()
	template.SerialNumber = must(rand.Int(rand.Reader, big.NewInt(1<<62)))
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = i.now.Add(-time.Hour), i.now.Add(60*day)
	}
	parent := i.cert
	if parent == nil {
		parent = template
	}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, key, i.key))))
}

// leaf is the content of a Secret with a certificate for the server names.
func (i *issuer) leaf(change ...func(*x509.Certificate)) map[string][]byte {
	i.t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	return i.leafOf(key, change...)
}

func (i *issuer) leafOf(key crypto.Signer, change ...func(*x509.Certificate)) map[string][]byte {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "ostiary"}, DNSNames: serverNames.DNS, IPAddresses: serverNames.IPs}
	for _, c := range change {
		c(template)
	}
	leaf := i.certify(template, key.Public())
	block := &pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}
	return map[string][]byte{
		chainField:  pki.EncodeCertificates(leaf),
		keyField:    pem.EncodeToMemory(block),
		bundleField: pki.EncodeCertificates(i.cert),
	}
}

// fingerprintOf returns the fingerprint of the leaf in a Secret's content.
func fingerprintOf(data map[string][]byte) string {
	return pki.Serial(must(pki.ParseExternalCertificates(data[chainField]))[0])
}

// newSourceEnvironment has an external issuer. The test decides which bundles are
// published.
func newSourceEnvironment(t *testing.T) (*testEnvironment, *eventRecorder) {
	w := newTestEnvironment(t)
	events := &eventRecorder{}
	w.options.Source = &Source{Secret: sourceName}
	w.options.Events = events
	t.Cleanup(func() {
		for key := range w.keys {
			if key != "" && strings.Contains(events.String(), key) {
				t.Error("an event holds a key")
			}
		}
	})
	return w, events
}

// startPublishing starts a Provider and publishes its bundle.
func (w *testEnvironment) startPublishing() *Provider {
	var provider atomic.Pointer[Provider]
	w.options.Published = func(context.Context) (Published, error) {
		if from := provider.Load(); from != nil && from.Bundle() != nil {
			return Published{Bundles: [][]byte{from.Bundle()}, Epoch: from.TrustEpoch()}, nil
		}
		return Published{}, nil
	}
	started := w.startProvider()
	provider.Store(started)
	return started
}

func (w *testEnvironment) serial(provider *Provider) string {
	if m := provider.current.Load(); m != nil && m.tls.Leaf != nil {
		return pki.Serial(m.tls.Leaf)
	}
	return "nothing"
}

// TestExternalIssuerChanges checks that a leaf of another CA is served only after
// its CA has been published for the overlap, and that the previous CA is removed
// when it is not needed.
func TestExternalIssuerChanges(t *testing.T) {
	g := NewWithT(t)
	w, events := newSourceEnvironment(t)
	first, second := newIssuer(t, "first", w.clock.Now()), newIssuer(t, "second", w.clock.Now())
	old := first.leaf()
	w.put(sourceName, old)
	provider := w.startPublishing()
	stop := w.startRotator()
	g.Eventually(func() string { return w.serial(provider) }, timeout, pause).Should(Equal(fingerprintOf(old)))

	renewed := first.leaf()
	w.put(sourceName, renewed)
	g.Eventually(func() string { return w.serial(provider) }, timeout, pause).Should(Equal(fingerprintOf(renewed)),
		"a leaf of the same CA is used at once")

	next := second.leaf()
	w.put(sourceName, next)
	g.Eventually(func() int { return bytes.Count(provider.Bundle(), []byte("BEGIN")) }, timeout, pause).Should(Equal(2))
	address, stale := w.serve(provider), renewed[bundleField]
	for range 14 {
		w.clock.Step(time.Minute)
		time.Sleep(pause)
		if serial, err := w.servedSerial(address, stale); err != nil || serial != fingerprintOf(renewed) {
			t.Fatalf("before the overlap has passed, %s is served, %v", serial, err)
		}
	}
	// A new replica serves the same as the others, nothing newer.
	again := NewProvider(w.client, w.withOwnMetrics())
	w.run(again.Start)
	g.Eventually(func() string { return w.serial(again) }, timeout, pause).Should(Equal(fingerprintOf(renewed)))

	g.Eventually(func() string { w.clock.Step(5 * time.Second); return w.serial(provider) }, timeout, pause).Should(Equal(fingerprintOf(next)))
	g.Eventually(func() string { w.clock.Step(time.Second); return string(provider.Bundle()) }, timeout,
		pause).Should(Equal(string(next[bundleField])))
	if _, err := w.servedSerial(address, next[bundleField]); err != nil {
		t.Errorf("under the new CA: %v", err)
	}
	stop()
	if got := w.secret(sourceName).Data; !bytes.Equal(got[chainField], next[chainField]) || len(got) != 3 {
		t.Error("the Secret of the external issuer was written")
	}
	if data := w.secret(caName).Data; len(data[keyField]) != 0 {
		t.Error("the Secret has a key for an external CA")
	}
	if log := events.String(); !strings.Contains(log, "Warning CACreated: the external certificate has another CA; epoch 2, phase Trusting") {
		t.Errorf("events:\n%s", log)
	}
}

// TestExternalProblems writes invalid content to the Secret: it is reported, and
// the last valid leaf stays in use.
func TestExternalProblems(t *testing.T) {
	now := time.Now()
	i, other := newIssuer(t, "external issuer", now), newIssuer(t, "other", now)
	good := i.leaf()
	with := func(field string, value []byte) map[string][]byte {
		data := maps.Clone(good)
		data[field] = value
		return data
	}
	key := good[keyField]
	shortKey := must(rsa.GenerateKey(rand.Reader, 1024))
	long := bytes.Repeat(good[chainField], 11)
	tests := map[string]struct {
		data   map[string][]byte
		reason string
		want   string // in the event
	}{
		"no CA": {
			data:   with(bundleField, nil),
			reason: "encoding",
			want:   "field ca.crt: empty: write at least one certificate in PEM",
		},
		"key of another": {
			data:   with(keyField, other.leaf()[keyField]),
			reason: "key",
			want:   "field tls.key: the key does not belong to the certificate",
		},
		"a weak key": {
			data:   i.leafOf(shortKey),
			reason: "key",
			want:   "field tls.key: the key is an RSA key of 1024 bits: use one of 2048 to 8192 bits, or an ECDSA key",
		},
		"no key": {data: with(keyField, nil), reason: "encoding", want: "field tls.key: empty"},
		"expired": {
			data:   i.leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*day), now.Add(-day) }),
			reason: "validity",
			want:   "the certificate expired at",
		},
		"other names": {
			data:   i.leaf(func(c *x509.Certificate) { c.DNSNames = []string{"elsewhere.svc"} }),
			reason: "names",
			want:   "not " + serverNames.DNS[0],
		},
		"a CA as certificate": {
			data:   i.leaf(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }),
			reason: "usage",
			want:   "the certificate is a CA",
		},
		"for clients": {
			data:   i.leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
			reason: "usage",
			want:   "lacks the extended key usage serverAuth",
		},
		"a key beside the CA": {
			data:   with(bundleField, append(bytes.Clone(good[bundleField]), key...)),
			reason: "key",
			want:   "field ca.crt: it contains a private key: remove the key, a bundle contains only certificates",
		},
		"a key beside the chain": {
			data:   with(chainField, append(bytes.Clone(good[chainField]), key...)),
			reason: "key",
			want:   "field tls.crt: it contains a private key",
		},
		"another CA": {
			data:   with(bundleField, other.leaf()[bundleField]),
			reason: "chain",
			want:   "write the root of the chain to ca.crt",
		},
		"a leaf as CA": {data: with(bundleField, good[chainField]), reason: "usage", want: "is not a CA"},
		"too much": {
			data:   with(bundleField, bytes.Repeat(good[bundleField], 200)),
			reason: "encoding",
			want:   "the limit is 65536",
		},
		"too long a chain": {
			data:   with(chainField, long),
			reason: "encoding",
			want:   "a chain of 11 certificates: at most 10 are allowed",
		},
		"not renewed in time": {
			data:   i.leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-50*day), now.Add(5*day) }),
			reason: "expiring",
			want:   "has not been renewed",
		},
		"garbage": {
			data:   with(chainField, []byte("garbage")),
			reason: "encoding",
			want:   "field tls.crt: not PEM",
		},
		"Secret without any field": {
			data:   map[string][]byte{chainField: {}, keyField: {}},
			reason: "encoding",
			want:   "field tls.crt: empty",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			w, events := newSourceEnvironment(t)
			w.put(sourceName, good)
			provider := w.startProvider()
			rotator := w.rotator()
			w.run(rotator.Run)
			g.Eventually(func() string { return w.serial(provider) }, timeout, pause).Should(Equal(fingerprintOf(good)))
			g.Expect(rotator.Blocked()).To(BeEmpty())

			w.put(sourceName, tc.data)
			g.Eventually(events.String, timeout, pause).Should(And(
				ContainSubstring("Warning CertificateProblem: Secret "+w.options.Namespace+"/"+sourceName), ContainSubstring(tc.want)))
			for _, reason := range sourceReasons() {
				want := 0.0
				if reason == tc.reason {
					want = 1
				}
				if got := testutil.ToFloat64(rotator.metrics.problem.WithLabelValues(reason)); got != want {
					t.Errorf("the metric for %s is %v, want %v", reason, got, want)
				}
			}
			if tc.reason != "expiring" && w.serial(provider) != fingerprintOf(good) {
				t.Error("the last valid certificate is not served")
			}
			w.put(sourceName, good)
			g.Eventually(func() float64 { return testutil.ToFloat64(rotator.metrics.problem.WithLabelValues(tc.reason)) },
				timeout, pause).Should(BeZero())
			if count := strings.Count(events.String(), "CertificateProblem"); count != 1 {
				t.Errorf("%d events about one problem:\n%s", count, events)
			}
		})
	}
}

// TestExternalForms covers valid certificates of different origins.
func TestExternalForms(t *testing.T) {
	now := time.Now()
	i := newIssuer(t, "external issuer", now)
	rsaKey := must(rsa.GenerateKey(rand.Reader, 2048))
	withRSA := i.leafOf(rsaKey)
	withRSA[keyField] = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})
	ecKey := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	withEC := i.leafOf(ecKey)
	withEC[keyField] = append([]byte("-----BEGIN EC PARAMETERS-----\nBgUrgQQAIg==\n-----END EC PARAMETERS-----\n"),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(ecKey))})...)
	self := &issuer{t: t, key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), now: now}
	selfSigned := self.certify(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "self"},
		DNSNames:    serverNames.DNS,
		IPAddresses: serverNames.IPs,
	}, self.key.Public())
	self.cert = selfSigned
	between := &issuer{t: t, key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), now: now}
	between.cert = i.certify(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "between"},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, between.key.Public())
	long := between.leaf()
	long[chainField] = append(long[chainField], pki.EncodeCertificates(between.cert)...)
	long[bundleField] = pki.EncodeCertificates(between.cert, i.cert)
	text := i.leaf()
	text[bundleField] = append([]byte("subject=external\n"), text[bundleField]...)
	tests := map[string]struct {
		data map[string][]byte
		root *x509.Certificate
	}{
		"an RSA key of openssl": {data: withRSA, root: i.cert},
		"an EC key of openssl":  {data: withEC, root: i.cert},
		"self-signed": {
			data: map[string][]byte{
				chainField:  pki.EncodeCertificates(selfSigned),
				keyField:    keyPEM(self.key),
				bundleField: pki.EncodeCertificates(selfSigned),
			},
			root: selfSigned,
		},
		"by an intermediate, and the root too": {data: long, root: i.cert},
		"text around it":                       {data: text, root: i.cert},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := newSourceEnvironment(t)
			w.put(sourceName, tc.data)
			provider := w.startProvider()
			w.startRotator()
			NewWithT(t).Eventually(func() string { return w.serial(provider) }, timeout, pause).Should(Equal(fingerprintOf(tc.data)))
			if got := string(provider.Bundle()); got != string(pki.EncodeCertificates(tc.root)) {
				t.Errorf("the bundle is %s", got)
			}
			if _, err := w.servedSerial(w.serve(provider), provider.Bundle()); err != nil {
				t.Errorf("a client that trusts the bundle: %v", err)
			}
		})
	}
}

func keyPEM(key crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
}

// TestExternalMissing starts without certificates and changes from Ostiary's own
// CA to an external issuer and back.
func TestExternalMissing(t *testing.T) {
	g := NewWithT(t)
	w, _ := newSourceEnvironment(t)
	provider := w.startPublishing()
	rotator := w.rotator()
	changed := rotator.Subscribe(t.Context())
	stop := w.run(rotator.Run)
	g.Eventually(changed, timeout).Should(Receive())
	g.Expect(rotator.Blocked()).To(Equal("Secret " + w.options.Namespace + "/" + sourceName +
		" does not exist: create it with tls.crt, tls.key and ca.crt"))
	if err := provider.Ready(); err == nil {
		t.Error("a replica without certificate is ready")
	}
	data := newIssuer(t, "external issuer", w.clock.Now()).leaf()
	w.put(sourceName, data)
	g.Eventually(func() string { return w.serial(provider) }, timeout, pause).Should(Equal(fingerprintOf(data)))
	g.Eventually(rotator.Blocked, timeout, pause).Should(BeEmpty())
	stop()

	address, stale := w.serve(provider), provider.Bundle()
	source := w.options.Source
	for _, w.options.Source = range []*Source{nil, source} {
		stop := w.startRotator()
		before := w.serial(provider)
		g.Eventually(func() string {
			w.clock.Step(20 * time.Second)
			serial, err := w.servedSerial(address, stale)
			if err != nil && serial == before {
				t.Errorf("with the bundle from before: %v", err)
			}
			return w.serial(provider)
		}, timeout, pause).ShouldNot(Equal(before))
		g.Eventually(func() int { w.clock.Step(time.Second); return bytes.Count(provider.Bundle(), []byte("BEGIN")) },
			timeout, pause).Should(Equal(1))
		stale = provider.Bundle()
		stop()
	}
	if w.serial(provider) != fingerprintOf(data) {
		t.Error("the external certificate is not served again")
	}
}
