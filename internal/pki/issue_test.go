package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestNewCA(t *testing.T) {
	pair := mustCA(t, names, epoch0)
	ca := pair.Certificate()
	other := mustCA(t, names, epoch0).Certificate()
	for want, ok := range map[string]bool{
		"it is a CA":                       ca.IsCA && ca.BasicConstraintsValid,
		"path length 1":                    ca.MaxPathLen == 1,
		"signs certificates only":          ca.KeyUsage == x509.KeyUsageCertSign,
		"an hour back":                     ca.NotBefore.Equal(epoch0.Add(-time.Hour)),
		"three years":                      ca.NotAfter.Equal(epoch0.Add(3 * 365 * 24 * time.Hour)),
		"positive serial":                  ca.SerialNumber.Sign() > 0,
		"serial of at most 128 bits":       ca.SerialNumber.BitLen() <= 128,
		"another serial next time":         ca.SerialNumber.Cmp(other.SerialNumber) != 0,
		"another subject next time":        ca.Subject.String() != other.Subject.String(),
		"critical constraints":             ca.PermittedDNSDomainsCritical,
		"the DNS name is permitted":        len(ca.PermittedDNSDomains) == 1 && ca.PermittedDNSDomains[0] == names.DNS[0],
		"the address is permitted":         len(ca.PermittedIPRanges) == 1 && ca.PermittedIPRanges[0].String() == "127.0.0.1/32",
		"it accepts itself for its names":  pair.checkCA(names, epoch0) == nil,
		"its bundle holds it":              mustBundle(t, pair).Issuer(ca).Equal(ca),
		"subject key id differs":           !bytes.Equal(ca.SubjectKeyId, other.SubjectKeyId),
		"no extended usage on a CA":        len(ca.ExtKeyUsage) == 0,
		"signature algorithm is ECDSA-256": ca.SignatureAlgorithm == x509.ECDSAWithSHA256,
	} {
		if !ok {
			t.Errorf("the CA breaks: %s", want)
		}
	}
}

func TestNewLeaf(t *testing.T) {
	ca := mustCA(t, names, epoch0)
	tests := map[string]struct {
		now          time.Time
		wantNotAfter time.Time
	}{
		"young CA":        {epoch0, epoch0.Add(90 * day)},
		"CA near its end": {epoch0.Add(defaultCALifetime - day), ca.Certificate().NotAfter},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			leaf := mustLeaf(t, ca, names, tc.now).Certificate()
			if !leaf.NotAfter.Equal(tc.wantNotAfter) {
				t.Errorf("NotAfter = %s, want %s", leaf.NotAfter, tc.wantNotAfter)
			}
			if want := tc.now.Add(-time.Hour); !leaf.NotBefore.Equal(want) {
				t.Errorf("NotBefore = %s, want %s", leaf.NotBefore, want)
			}
			if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature {
				t.Errorf("IsCA = %t, KeyUsage = %b", leaf.IsCA, leaf.KeyUsage)
			}
			if len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
				t.Errorf("ExtKeyUsage = %v, want serverAuth only", leaf.ExtKeyUsage)
			}
			if !names.equal(leaf) {
				t.Errorf("names = %v, want %v", leaf.DNSNames, names)
			}
		})
	}
}

func TestRandomSourceFails(t *testing.T) {
	for name, random := range map[string]*bytes.Reader{
		"ends early": bytes.NewReader(make([]byte, 5)),
		"only zeros": bytes.NewReader(make([]byte, 64)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newCA(names, config(), clocksAt(epoch0), random); err == nil {
				t.Error("a CA was made")
			}
		})
	}
}

func TestSerialComesFromTheReader(t *testing.T) {
	want := strings.Repeat("ab", 16)
	ca, err := newCA(names, config(), clocksAt(epoch0), bytes.NewReader(bytes.Repeat([]byte{0xab}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	if got := Serial(ca.Certificate()); got != want {
		t.Errorf("serial = %s, want %s", got, want)
	}
}

// TestRealTLSClient lets crypto/tls decide: it must accept the leaf under the
// names that the CA permits, and refuse one that the same CA key signed for
// any other name.
func TestRealTLSClient(t *testing.T) {
	v6 := net.ParseIP("::1")
	dnsOnly := Names{DNS: names.DNS}
	ipOnly := Names{IPs: names.IPs}
	both6 := Names{DNS: names.DNS, IPs: []net.IP{names.IPs[0], v6}}
	tests := map[string]struct {
		ca, leaf Names
		server   string
		wantErr  string
	}{
		"service name":             {ca: names, leaf: names, server: names.DNS[0]},
		"address":                  {ca: names, leaf: names, server: "127.0.0.1"},
		"address of version 6":     {ca: both6, leaf: both6, server: "::1"},
		"service name, no address": {ca: dnsOnly, leaf: dnsOnly, server: names.DNS[0]},
		"address, no service name": {ca: ipOnly, leaf: ipOnly, server: "127.0.0.1"},
		"name that the leaf has not": {
			ca:      names,
			leaf:    names,
			server:  "kubernetes.default.svc",
			wantErr: "not kubernetes.default.svc",
		},
		"leaf for another name": {
			ca:      names,
			leaf:    Names{DNS: []string{"kubernetes.default.svc"}},
			server:  "kubernetes.default.svc",
			wantErr: "constraint",
		},
		"leaf for another name as well": {
			ca:      names,
			leaf:    Names{DNS: []string{names.DNS[0], "kubernetes.default.svc"}},
			server:  names.DNS[0],
			wantErr: "constraint",
		},
		"leaf for another address": {
			ca:      names,
			leaf:    Names{IPs: []net.IP{net.ParseIP("127.0.0.2")}},
			server:  "127.0.0.2",
			wantErr: "constraint",
		},
		"leaf for another family":         {ca: names, leaf: Names{IPs: []net.IP{v6}}, server: "::1", wantErr: "constraint"},
		"address where none is":           {ca: dnsOnly, leaf: names, server: "127.0.0.1", wantErr: "constraint"},
		"version 6 address where none is": {ca: dnsOnly, leaf: Names{IPs: []net.IP{v6}}, server: "::1", wantErr: "constraint"},
		"name where none is":              {ca: ipOnly, leaf: names, server: names.DNS[0], wantErr: "constraint"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ca := mustCA(t, tc.ca, epoch0)
			leaf := mustLeaf(t, ca, tc.leaf, epoch0)
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(mustBundle(t, ca).PEM()) {
				t.Fatal("the bundle has no root for crypto/x509")
			}
			err := handshake(leaf.TLS(), &tls.Config{RootCAs: roots, ServerName: tc.server, Time: func() time.Time { return epoch0 }})
			switch {
			case tc.wantErr == "" && err != nil:
				t.Errorf("the client refuses: %v", err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("the client says %v, want an error with %q", err, tc.wantErr)
			}
		})
	}
}

func handshake(cert *tls.Certificate, client *tls.Config) error {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil },
	})
	if err != nil {
		return err
	}
	go func() {
		if conn, err := ln.Accept(); err == nil {
			_ = errors.Join(conn.(*tls.Conn).Handshake(), conn.Close())
		}
	}()
	conn, err := tls.Dial("tcp", ln.Addr().String(), client)
	if err == nil {
		err = conn.Close()
	}
	return errors.Join(err, ln.Close())
}

func TestVerifyThroughAnIntermediate(t *testing.T) {
	// The path length of a CA must allow a cross-certificate.
	a, b := mustCA(t, names, epoch0), mustCA(t, names, epoch0)
	der, err := x509.CreateCertificate(rand.Reader, b.Certificate(), a.Certificate(), b.Certificate().PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cross, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	leaf := mustLeaf(t, b, names, epoch0)
	if err := Verify([]*x509.Certificate{leaf.Certificate(), cross}, mustBundle(t, a), names, epoch0); err != nil {
		t.Errorf("the chain through the intermediate is refused: %v", err)
	}
	if err := Verify([]*x509.Certificate{leaf.Certificate()}, mustBundle(t, a), names, epoch0); err == nil {
		t.Error("without the intermediate the leaf of another CA is accepted")
	}
}
