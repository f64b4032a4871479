package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPEMRoundTrip(t *testing.T) {
	ca := mustCA(t, names, epoch0)
	keyPEM, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	chain, err := ParseCertificates(ca.CertificatePEM())
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Certificate().Equal(ca.Certificate()) || !got.key.(*ecdsa.PrivateKey).Equal(ca.key) {
		t.Error("the pair is not the same after encoding and parsing")
	}
}

func TestParseRefuses(t *testing.T) {
	ca := mustCA(t, names, epoch0)
	cert := ca.CertificatePEM()
	key, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	rsaPEM := pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: rsaDER})
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edDER, err := x509.MarshalPKCS8PrivateKey(edKey)
	if err != nil {
		t.Fatal(err)
	}
	edPEM := pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: edDER})
	bad := func(blockType string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: []byte("no DER")})
	}
	asCerts := func(b []byte) error { _, err := ParseCertificates(b); return err }
	asKey := func(b []byte) error { _, err := ParseKey(b); return err }
	tests := map[string]struct {
		parse   func([]byte) error
		data    []byte
		wantErr string
	}{
		"nothing": {parse: asCerts, wantErr: "empty"},
		"spaces":  {parse: asCerts, data: []byte(" \n"), wantErr: "empty"},
		"no PEM":  {parse: asCerts, data: []byte("hello"), wantErr: "text that is not PEM after 0 blocks"},
		"text before": {
			parse:   asCerts,
			data:    append([]byte("hello\n"), cert...),
			wantErr: "text that is not PEM after 0 blocks",
		},
		"text after": {
			parse:   asCerts,
			data:    append(bytes.Clone(cert), "hello"...),
			wantErr: "text that is not PEM after 1 blocks",
		},
		"half a block": {parse: asCerts, data: cert[:len(cert)/2], wantErr: "block 1 is not PEM"},
		"a key":        {parse: asCerts, data: key, wantErr: `block 1 is not of type "CERTIFICATE"`},
		"a key behind": {
			parse:   asCerts,
			data:    append(bytes.Clone(cert), key...),
			wantErr: `block 2 is not of type "CERTIFICATE"`,
		},
		"no certificate in it": {parse: asCerts, data: bad(certificateBlock), wantErr: "certificate 1: x509"},
		"too large": {
			parse:   asCerts,
			data:    bytes.Repeat([]byte("-----BEGIN "), 64<<10/11+1),
			wantErr: "65538 bytes of PEM: the limit is 65536",
		},
		"a certificate as key": {parse: asKey, data: cert, wantErr: `block 1 is not of type "PRIVATE KEY"`},
		"two keys":             {parse: asKey, data: append(bytes.Clone(key), key...), wantErr: "2 keys: expected one"},
		"no key in it":         {parse: asKey, data: bad(keyBlock), wantErr: "not a PKCS #8 private key"},
		"no EC key in it":      {parse: asKey, data: bad(ecKeyBlock), wantErr: "not a SEC 1 private key"},
		"no RSA key in it":     {parse: asKey, data: bad(rsaKeyBlock), wantErr: "not a PKCS #1 private key"},
		"parameters alone":     {parse: asKey, data: bad(paramsBlock), wantErr: "0 keys: expected one"},
		"an encrypted key": {
			parse:   asKey,
			data:    pem.EncodeToMemory(&pem.Block{Type: ecKeyBlock, Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}}),
			wantErr: "the key is encrypted: store it without a passphrase",
		},
		"a short RSA key": {
			parse:   asKey,
			data:    rsaPEM,
			wantErr: "the key is an RSA key of 1024 bits: use one of 2048 to 8192 bits, or an ECDSA key",
		},
		"another kind of key": {parse: asKey, data: edPEM, wantErr: "the key is neither an ECDSA nor an RSA key"},
		"too large to be a key": {
			parse:   asKey,
			data:    bytes.Repeat(key, 64<<10/len(key)+1),
			wantErr: "bytes of PEM: the limit is 65536",
		},
		"no key at all": {parse: asKey, wantErr: "empty"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.parse(tc.data)
			var rejected *RejectedError
			if !errors.As(err, &rejected) || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error = %v, want a RejectedError with %q", err, tc.wantErr)
			}
		})
	}
}

func TestNewPairRefuses(t *testing.T) {
	a, b := mustCA(t, names, epoch0), mustCA(t, names, epoch0)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		chain []*x509.Certificate
		key   crypto.Signer
		want  Reason
	}{
		"no certificate": {nil, a.key, ReasonEncoding},
		"no key":         {a.chain, nil, ReasonKey},
		"another curve":  {a.chain, p224, ReasonKey},
		"another key":    {a.chain, b.key, ReasonKey},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewPair(tc.chain, tc.key)
			var rejected *RejectedError
			if !errors.As(err, &rejected) || rejected.Reason != tc.want {
				t.Errorf("error = %v, want reason %s", err, tc.want)
			}
		})
	}
}

func TestPairNeverPrintsItsKey(t *testing.T) {
	ca := mustCA(t, names, epoch0)
	keyPEM, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := ca.key.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(ca) //nolint:staticcheck // that there is nothing to marshal is the point
	if err != nil {
		t.Fatal(err)
	}
	s := State{CA: Authority{Pair: ca}}
	out := fmt.Sprintf("%v %+v %#v %s %v %+v %#v %s", ca, ca, ca, ca, s, s, s, asJSON)
	for _, secret := range []string{
		string(keyPEM),
		base64.StdEncoding.EncodeToString(raw),
		fmt.Sprintf("%x", raw),
		fmt.Sprint(raw),
		strings.Trim(fmt.Sprint(raw), "[]"),
		ca.key.(*ecdsa.PrivateKey).D.String(), //nolint:staticcheck // the number that must not be printed
	} {
		if strings.Contains(out, secret) {
			t.Errorf("the key is in %s", out)
		}
	}
}

func TestBundleIsCanonical(t *testing.T) {
	a, b, c := mustCA(t, names, epoch0), mustCA(t, names, epoch0), mustCA(t, names, epoch0)
	want := mustBundle(t, a, b).PEM()
	for name, got := range map[string]Bundle{
		"other order": mustBundle(t, b, a),
		"duplicates":  mustBundle(t, b, a, b, a, a),
	} {
		if diff := cmp.Diff(string(want), string(got.PEM())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !got.Equal(mustBundle(t, a, b)) {
			t.Errorf("%s: the bundles are not equal", name)
		}
	}
	backwards := append(b.CertificatePEM(), a.CertificatePEM()...)
	forwards := append(a.CertificatePEM(), b.CertificatePEM()...)
	for _, data := range [][]byte{backwards, forwards} {
		got, err := ParseBundle(append([]byte("\n\n"), data...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got.PEM())); diff != "" {
			t.Error(diff)
		}
	}
	if mustBundle(t, a).Equal(mustBundle(t, a, b)) {
		t.Error("bundles of different roots are equal")
	}

	for name, roots := range map[string][]*x509.Certificate{
		"none":   nil,
		"three":  {a.Certificate(), b.Certificate(), c.Certificate()},
		"a leaf": {mustLeaf(t, a, names, epoch0).Certificate()},
	} {
		if _, err := NewBundle(roots...); err == nil {
			t.Errorf("a bundle of %s is accepted", name)
		}
	}
}

func TestPairCheck(t *testing.T) {
	ca, unrelated := mustCA(t, names, epoch0), mustCA(t, names, epoch0)
	leaf := mustLeaf(t, ca, names, epoch0)
	other := Names{DNS: []string{"other.ostiary-system.svc"}}
	client := mustCertify(t, ca, &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	anyUsage := mustCertify(t, ca, &x509.Certificate{})
	cannotSign := mustCertify(t, ca, &x509.Certificate{
		KeyUsage:    x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	subCA := mustCertify(t, ca, &x509.Certificate{
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	})
	tests := map[string]struct {
		pair   Pair
		bundle Bundle
		names  Names
		now    time.Time
		want   Reason
	}{
		"good":               {leaf, mustBundle(t, ca), names, epoch0, ""},
		"good under two":     {leaf, mustBundle(t, ca, unrelated), names, epoch0, ""},
		"good for one name":  {leaf, mustBundle(t, ca), Names{IPs: names.IPs}, epoch0, ""},
		"at its last moment": {leaf, mustBundle(t, ca), names, epoch0.Add(90 * day), ""},
		"expired":            {leaf, mustBundle(t, ca), names, epoch0.Add(90*day + time.Second), ReasonValidity},
		"not yet valid":      {leaf, mustBundle(t, ca), names, epoch0.Add(-time.Hour - time.Second), ReasonValidity},
		"another name":       {leaf, mustBundle(t, ca), other, epoch0, ReasonNames},
		"another CA":         {leaf, mustBundle(t, unrelated), names, epoch0, ReasonChain},
		"no bundle":          {leaf, Bundle{}, names, epoch0, ReasonChain},
		"no pair":            {Pair{}, mustBundle(t, ca), names, epoch0, ReasonEncoding},
		"client certificate": {client, mustBundle(t, ca), names, epoch0, ReasonUsage},
		"any usage":          {anyUsage, mustBundle(t, ca), names, epoch0, ""},
		"cannot sign":        {cannotSign, mustBundle(t, ca), names, epoch0, ReasonUsage},
		"a CA":               {subCA, mustBundle(t, ca), names, epoch0, ReasonUsage},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.pair.Check(tc.bundle, tc.names, tc.now)
			var rejected *RejectedError
			switch errors.As(err, &rejected); {
			case tc.want == "" && err != nil:
				t.Errorf("error = %v, want none", err)
			case tc.want != "" && (rejected == nil || rejected.Reason != tc.want):
				t.Errorf("error = %v, want reason %s", err, tc.want)
			}
		})
	}
}

func TestVerifyRequiresServerCertificate(t *testing.T) {
	ca := mustCA(t, names, epoch0)
	client := mustCertify(t, ca, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err := Verify(client.chain, mustBundle(t, ca), names, epoch0); err == nil {
		t.Error("a client certificate is accepted from a server")
	}
	if err := Verify(nil, mustBundle(t, ca), names, epoch0); err == nil {
		t.Error("an empty chain is accepted")
	}
}

// mustCertify signs a certificate for the usual names with unusual properties.
func mustCertify(t *testing.T, ca Pair, tmpl *x509.Certificate) Pair {
	t.Helper()
	key, serial, err := newKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.SerialNumber = serial
	tmpl.NotBefore, tmpl.NotAfter = epoch0.Add(-time.Hour), epoch0.Add(day)
	tmpl.DNSNames, tmpl.IPAddresses = names.DNS, names.IPs
	pair, err := sign(tmpl, ca.Certificate(), key, ca.key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if key, err := ParseKey(data); (key == nil) == (err == nil) {
			t.Errorf("key = %v, error = %v", key != nil, err)
		}
		b, err := ParseBundle(data)
		if err != nil {
			return
		}
		again, err := ParseBundle(b.PEM())
		if err != nil || !again.Equal(b) {
			t.Errorf("the bundle does not survive its own encoding: %v", err)
		}
	})
}
