package authentication

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/pki"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// signer is a CA or an intermediate one.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue signs a certificate that edits changed; a nil signer signs itself.
func (s *signer) issue(t *testing.T, edits ...func(*x509.Certificate)) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "someone"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, edit := range edits {
		edit(template)
	}
	if s == nil {
		s = &signer{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert: cert, key: key}
}

func authority(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid, c.ExtKeyUsage = true, true, nil }

func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName = name }
}

func TestCertificates(t *testing.T) {
	ca, other := (*signer)(nil).issue(t, authority, named("ca")), (*signer)(nil).issue(t, authority, named("ca"))
	between := ca.issue(t, authority, named("between"))
	uri := &url.URL{Scheme: "spiffe", Host: "example.test", Path: "/apiserver"}
	accepted, err := NewCertificates(pki.EncodeCertificates(ca.cert), []string{"apiserver", "api.example.test", uri.String()}, now)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		chain []*signer
		want  Reason
	}{
		"by common name": {chain: []*signer{ca.issue(t, named("apiserver"))}},
		"by DNS name": {
			chain: []*signer{ca.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"a", "api.example.test"} })},
		},
		"by URI":                {chain: []*signer{ca.issue(t, func(c *x509.Certificate) { c.URIs = []*url.URL{uri} })}},
		"through another CA":    {chain: []*signer{between.issue(t, named("apiserver")), between}},
		"without that other CA": {chain: []*signer{between.issue(t, named("apiserver"))}, want: ReasonCertificate},
		"none":                  {want: ReasonNone},
		"another CA's":          {chain: []*signer{other.issue(t, named("apiserver"))}, want: ReasonCertificate},
		"another CA's, with it": {chain: []*signer{other.issue(t, named("apiserver")), other}, want: ReasonCertificate},
		"self-signed":           {chain: []*signer{(*signer)(nil).issue(t, named("apiserver"))}, want: ReasonCertificate},
		"another name":          {chain: []*signer{ca.issue(t, named("kubelet"))}, want: ReasonName},
		"a longer name":         {chain: []*signer{ca.issue(t, named("apiserver2"))}, want: ReasonName},
		"the name in capitals":  {chain: []*signer{ca.issue(t, named("Apiserver"))}, want: ReasonName},
		"no name":               {chain: []*signer{ca.issue(t, named(""))}, want: ReasonName},
		"a wildcard": {
			chain: []*signer{ca.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"*.example.test"} })},
			want:  ReasonName,
		},
		"expired": {
			chain: []*signer{ca.issue(t, named("apiserver"), func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) })},
			want:  ReasonCertificate,
		},
		"not valid yet": {
			chain: []*signer{ca.issue(t, named("apiserver"), func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) })},
			want:  ReasonCertificate,
		},
		"for servers": {
			chain: []*signer{
				ca.issue(t, named("apiserver"),
					func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
			},
			want: ReasonCertificate,
		},
		"with too many others":   {chain: []*signer{ca.issue(t, named("apiserver")), ca, ca, ca, ca, ca}, want: ReasonCertificate},
		"the name on the second": {chain: []*signer{ca.issue(t), ca.issue(t, named("apiserver"))}, want: ReasonName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var credentials Credentials
			for _, s := range tc.chain {
				credentials.Certificates = append(credentials.Certificates, s.cert)
			}
			wantRejected(t, accepted, credentials, tc.want)
		})
	}
}

func wantRejected(t *testing.T, method Method, credentials Credentials, want Reason) {
	t.Helper()
	err := Check([]Method{method}, credentials, now)
	var rejected *RejectedError
	var got Reason
	if errors.As(err, &rejected) {
		got = rejected.Reason
	}
	if got != want {
		t.Errorf("Check() = %v (%q), want reason %q", err, got, want)
	}
	for _, secret := range []string{credentials.Token, credentials.User, credentials.Password} {
		if err != nil && len(secret) >= minSecret && strings.Contains(err.Error(), secret) {
			t.Errorf("Check() = %v repeats the credentials", err)
		}
	}
}

func TestNewCertificatesRefuses(t *testing.T) {
	leaf := (*signer)(nil).issue(t)
	expired := (*signer)(nil).issue(t, authority, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) })
	tests := map[string]struct {
		bundle []byte
		want   string
	}{
		"nothing":     {nil, "empty: write at least one certificate in PEM"},
		"white space": {[]byte(" \n"), "empty: write at least one certificate in PEM"},
		"not PEM":     {[]byte("certificate"), "not PEM"},
		"a key":       {[]byte("-----BEGIN PRIVATE KEY-----\n"), "it contains a private key: remove the key"},
		"a leaf":      {pki.EncodeCertificates(leaf.cert), "is not a CA: use the CA that signs the callers' certificates"},
		"expired":     {pki.EncodeCertificates(expired.cert), "expired"},
		"too large":   {make([]byte, 65<<10), "the limit is 65536"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if name == "too large" {
				tc.bundle[0] = '-'
			}
			_, err := NewCertificates(tc.bundle, []string{"a"}, now)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("NewCertificates() = %v, want one line with %q", err, tc.want)
			}
		})
	}
}

const (
	first  = "first-0123456789abcdef"
	second = "second-0123456789abcdef"
)

func TestTokens(t *testing.T) {
	method, err := NewTokens(map[string][]byte{"token": []byte(first + "\n"), "next": []byte(second)})
	if err != nil {
		t.Fatal(err)
	}
	for credentials, want := range map[string]Reason{
		"": ReasonNone, first: "", second: "", "token": ReasonToken, first + "x": ReasonToken, first[1:]: ReasonToken,
		first + "\n": ReasonToken, strings.Repeat("x", maxSecret+1): ReasonToken,
	} {
		t.Run(credentials[:min(len(credentials), 30)], func(t *testing.T) { wantRejected(t, method, Credentials{Token: credentials}, want) })
	}
}

func TestPasswords(t *testing.T) {
	method, err := NewPasswords(map[string][]byte{
		"username": []byte("api"),
		"password": []byte(first),
		"next":     []byte("with:colon:" + second),
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		user, password string
		want           Reason
	}{
		"right":               {user: "api", password: first},
		"the next":            {user: "api", password: "with:colon:" + second},
		"none":                {want: ReasonNone},
		"no password":         {user: "api", want: ReasonPassword},
		"no user":             {password: first, want: ReasonPassword},
		"another user":        {user: "apj", password: first, want: ReasonPassword},
		"another password":    {user: "api", password: second, want: ReasonPassword},
		"the user's own":      {user: "api", password: "api", want: ReasonPassword},
		"a colon in the user": {user: "api:with", password: "colon:" + second, want: ReasonPassword},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantRejected(t, method, Credentials{User: tc.user, Password: tc.password}, tc.want)
		})
	}
}

func TestSecretsRefused(t *testing.T) {
	many := map[string][]byte{}
	for _, name := range strings.Split("abcdefghi", "") {
		many[name] = []byte(first)
	}
	tests := map[string]struct {
		data                     map[string][]byte
		wantTokens, wantPassword string
	}{
		"empty": {
			wantTokens:   "no token: set one of at least 16 bytes in the field token",
			wantPassword: "no user: set the field username",
		},
		"no password": {
			data:         map[string][]byte{"username": []byte("user-0123456789abcdef")},
			wantPassword: "no password: set one of at least 16 bytes in the field password",
		},
		"short": {
			data:         map[string][]byte{"username": []byte("u"), "password": []byte("\n0123456789abcde\n")},
			wantTokens:   "field password: the token has fewer than 16 bytes: use a longer one",
			wantPassword: "field password: the password has fewer than 16 bytes: use a longer one",
		},
		"an empty field": {
			data:         map[string][]byte{"username": []byte(first), "password": nil},
			wantTokens:   "field password: the token has fewer",
			wantPassword: "field password: the password has fewer",
		},
		"long": {
			data:         map[string][]byte{"username": []byte(first), "password": make([]byte, maxSecret+3)},
			wantTokens:   "field password: the token has more than 4096 bytes",
			wantPassword: "field password: the password has more than 4096 bytes",
		},
		"two lines": {
			data:         map[string][]byte{"username": []byte(first), "password": []byte(first + "\n" + first)},
			wantTokens:   "field password: the token contains characters that HTTP headers cannot transport",
			wantPassword: "field password: the password contains characters that HTTP headers cannot transport",
		},
		"a colon": {
			data:         map[string][]byte{"username": []byte("a:b-0123456789abcdef"), "password": []byte(first)},
			wantPassword: "field username: must be one line without colons",
		},
		"many": {data: many, wantTokens: "9 fields with a token: at most 8 are allowed", wantPassword: "no user"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, tokens := NewTokens(tc.data)
			_, passwords := NewPasswords(tc.data)
			for i, err := range []error{tokens, passwords} {
				want := []string{tc.wantTokens, tc.wantPassword}[i]
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("got %v, want %q", err, want)
				}
				if err != nil && strings.Contains(err.Error(), first) {
					t.Errorf("%v has the secret in it", err)
				}
			}
		})
	}
}

// Any method is enough. The error is from the first with credentials.
func TestCheckSeveral(t *testing.T) {
	tokens, err := NewTokens(map[string][]byte{"token": []byte(first)})
	if err != nil {
		t.Fatal(err)
	}
	passwords, err := NewPasswords(map[string][]byte{"username": []byte("api"), "password": []byte(second)})
	if err != nil {
		t.Fatal(err)
	}
	missing := NotLoaded{&Tokens{}}
	tests := map[string]struct {
		methods     []Method
		credentials Credentials
		want        error
	}{
		"one right, one wrong": {
			methods:     []Method{tokens, passwords},
			credentials: Credentials{Token: "wrong", User: "api", Password: second},
		},
		"both wrong": {
			methods:     []Method{tokens, passwords},
			credentials: Credentials{Token: "wrong", User: "api", Password: "no"},
			want:        &RejectedError{ReasonToken, "the bearer token is not accepted"},
		},
		"nothing": {
			methods:     []Method{tokens, passwords},
			credentials: Credentials{},
			want:        &RejectedError{ReasonNone, "the caller must present a bearer token or a user and a password"},
		},
		"another thing": {
			methods:     []Method{tokens},
			credentials: Credentials{User: "api", Password: second},
			want:        &RejectedError{ReasonNone, "the caller must present a bearer token"},
		},
		"not loaded": {
			methods:     []Method{missing},
			credentials: Credentials{Token: first},
			want:        &RejectedError{ReasonNotLoaded, "the accepted callers have not been loaded yet"},
		},
		"not loaded, the zero token": {
			methods:     []Method{missing},
			credentials: Credentials{Token: " "},
			want:        &RejectedError{ReasonNotLoaded, "the accepted callers have not been loaded yet"},
		},
		"not loaded, no credentials": {
			methods:     []Method{missing},
			credentials: Credentials{},
			want:        &RejectedError{ReasonNone, "the caller must present a bearer token"},
		},
		"not loaded, another method is": {
			methods:     []Method{missing, passwords},
			credentials: Credentials{User: "api", Password: second},
		},
		"no method is never an open method": {
			credentials: Credentials{Token: first},
			want:        &RejectedError{ReasonNone, "the caller must present "},
		},
		"zero values accept no password": {
			methods:     []Method{&Passwords{}},
			credentials: Credentials{User: "a", Password: "b"},
			want:        &RejectedError{ReasonPassword, "the user and the password are not accepted"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Check(tc.methods, tc.credentials, now)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s", diff)
			}
		})
	}
}
