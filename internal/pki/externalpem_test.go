package pki

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestExternalBundle(t *testing.T) {
	now := epoch0
	ca, other, old := mustCA(t, names, now), mustCA(t, names, now), mustCA(t, names, now.Add(-10*365*day))
	leaf := mustLeaf(t, ca, names, now)
	key, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	one := ca.CertificatePEM()
	both := EncodeCertificates(canonicalRoots(append(other.chain, ca.chain[0]))...)
	join := func(parts ...string) []byte { return []byte(strings.Join(parts, "")) }
	tests := map[string]struct {
		data       []byte
		want       []byte
		wantReason Reason
		wantError  string
	}{
		"one":                  {data: one, want: one},
		"two":                  {data: join(string(one), string(other.CertificatePEM())), want: both},
		"two in another order": {data: join(string(other.CertificatePEM()), string(one)), want: both},
		"one twice":            {data: join(string(one), string(one)), want: one},
		"text around it":       {data: join("# the CA\r\n", string(one), "\n# the end"), want: one},
		"a server's own":       {data: leaf.CertificatePEM(), want: leaf.CertificatePEM()},
		"one of two expired": {
			data: join(string(one), string(old.CertificatePEM())),
			want: EncodeCertificates(canonicalRoots(append(old.chain, ca.chain[0]))...),
		},
		"nothing": {wantReason: ReasonEncoding, wantError: "empty: write at least one certificate in PEM"},
		"white space": {
			data:       []byte(" \n\t"),
			wantReason: ReasonEncoding,
			wantError:  "empty: write at least one certificate in PEM",
		},
		"DER": {data: ca.chain[0].Raw, wantReason: ReasonEncoding, wantError: "not PEM: it contains no certificate"},
		"expired": {
			data:       old.CertificatePEM(),
			wantReason: ReasonValidity,
			wantError:  "the certificate expired at 2019-09-03T12:00:00Z",
		},
		"all expired": {
			data:       join(string(old.CertificatePEM()), string(mustCA(t, names, now.Add(-10*365*day)).CertificatePEM())),
			wantReason: ReasonValidity,
			wantError:  "none of the 2 certificates is currently valid; the last one: the certificate expired at 2019-09-03T12:00:00Z",
		},
		"not valid yet": {
			data:       mustCA(t, names, now.Add(48*time.Hour)).CertificatePEM(),
			wantReason: ReasonValidity,
			wantError:  "the certificate is not valid before 2026-09-03T11:00:00Z",
		},
		"a private key": {
			data:       join(string(one), string(key)),
			wantReason: ReasonKey,
			wantError:  "it contains a private key: remove the key, a bundle contains only certificates",
		},
		"a broken private key": {
			data:       join(string(one), "-----BEGIN RSA PRIVATE KEY-----\nAAAA"),
			wantReason: ReasonKey,
			wantError:  "it contains a private key: remove the key, a bundle contains only certificates",
		},
		"something else": {
			data:       join("-----BEGIN SECRET-----\nMA==\n-----END SECRET-----\n"),
			wantReason: ReasonEncoding,
			wantError:  "block 1 is not a certificate",
		},
		"an empty certificate": {
			data:       join(string(one), "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"),
			wantReason: ReasonEncoding,
			wantError:  "block 2 is not a valid certificate",
		},
		"a certificate cut short": {
			data:       join(string(one), string(one[:len(one)-40])),
			wantReason: ReasonEncoding,
			wantError:  "only 1 of 2 blocks are PEM",
		},
		"too large": {
			data:       bytes.Repeat([]byte("\n"), 2<<20),
			wantReason: ReasonEncoding,
			wantError:  "empty: write at least one certificate in PEM",
		},
		"too large, with one": {
			data:       append(bytes.Repeat([]byte("\n"), 2<<20), one...),
			wantReason: ReasonEncoding,
			wantError:  "the limit is 65536",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ExternalBundle(tt.data, now)
			if !bytes.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if tt.wantError == "" && err == nil {
				return
			}
			var rejected *RejectedError
			if !errors.As(err, &rejected) || rejected.Reason != tt.wantReason ||
				!strings.HasSuffix(err.Error(), tt.wantError) || tt.wantError == "" {
				t.Errorf("error %v, want %s: %q", err, tt.wantReason, tt.wantError)
			}
		})
	}
}

func FuzzExternalBundle(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ExternalBundle(data, epoch0)
		if err != nil {
			return
		}
		if again, err := ExternalBundle(got, epoch0); err != nil || !bytes.Equal(again, got) {
			t.Errorf("what was accepted is not in canonical form: %v", err)
		}
	})
}
