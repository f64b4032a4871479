package pki

import (
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"
)

func mustIssuer(t *testing.T, before Issuer, now time.Time) Issuer {
	t.Helper()
	i, err := before.Next(config(), nil, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func mustIssue(t *testing.T, i Issuer, now time.Time) Pair {
	t.Helper()
	leaf, err := i.Issue(checks, config(), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

var checks = Names{DNS: []string{"checks.shop.svc"}}

// TestIssuerRotatesInAnyOrder has every leaf verify under every bundle that a
// verifier may still have or have already.
func TestIssuerRotatesInAnyOrder(t *testing.T) {
	now := epoch0
	var issuers []Issuer
	var leaves []Pair
	i := Issuer{}
	for range 3 {
		i = mustIssuer(t, i, now)
		issuers, leaves = append(issuers, i), append(leaves, mustIssue(t, i, now))
		now = now.Add(30 * day)
	}
	for n, issuer := range issuers {
		for _, m := range []int{n - 1, n, n + 1} {
			if m < 0 || m >= len(leaves) {
				continue
			}
			if err := leaves[m].Check(issuer.Bundle(now), checks, now); err != nil {
				t.Errorf("leaf %d under the bundle of CA %d: %v", m, n, err)
			}
		}
		only := Bundle{roots: []*x509.Certificate{issuer.Pair.Certificate()}}
		if n+1 < len(leaves) {
			if err := leaves[n+1].Check(only, checks, now); err != nil {
				t.Errorf("leaf %d under CA %d alone: %v", n+1, n, err)
			}
		}
	}
}

func TestIssuerIsConstrained(t *testing.T) {
	i := mustIssuer(t, Issuer{}, epoch0)
	for _, name := range []string{"example.com", "svc.example.com", "checks.shop.svc.cluster.local"} {
		if _, err := i.Issue(Names{DNS: []string{name}}, config(), epoch0, rand.Reader); err == nil {
			t.Errorf("it can sign for %s", name)
		}
	}
	if _, err := i.Issue(Names{IPs: names.IPs}, config(), epoch0, rand.Reader); err == nil {
		t.Error("it can sign for an address")
	}
}

func TestIssuerDue(t *testing.T) {
	c := config()
	a := mustIssuer(t, Issuer{}, epoch0)
	lost, err := Issuer{}.Next(c, []*x509.Certificate{a.Pair.Certificate()}, epoch0.Add(day), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := mustIssuer(t, a, epoch0.Add(day))
	leaf := mustIssue(t, a, epoch0)
	later := epoch0.Add(day + time.Minute)
	for name, tt := range map[string]struct{ got, want string }{
		"none":             {got: Issuer{}.NeedsRenewal(c, epoch0), want: "there is no usable CA"},
		"new":              {got: a.NeedsRenewal(c, epoch0)},
		"just before half": {got: a.NeedsRenewal(c, epoch0.Add(c.CARenewAfter-time.Second))},
		"half":             {got: a.NeedsRenewal(c, epoch0.Add(c.CARenewAfter)), want: "the CA has reached its renewal age"},
		"no leaf":          {got: a.LeafDue(Pair{}, checks, c, epoch0), want: "no certificate"},
		"new leaf":         {got: a.LeafDue(leaf, checks, c, epoch0)},
		"old leaf": {
			got:  a.LeafDue(leaf, checks, c, epoch0.Add(c.LeafRenewAfter)),
			want: "the certificate has reached its renewal age",
		},
		"fewer names": {
			got:  a.LeafDue(mustIssueFor(t, a, "a.shop.svc", "checks.shop.svc"), checks, c, epoch0),
			want: "the names have changed",
		},
		"a cross-certificate":           {got: b.LeafDue(leaf, checks, c, later), want: "the CA has changed"},
		"no cross-certificate, at once": {got: lost.LeafDue(leaf, checks, c, later)},
		"no cross-certificate, after the overlap": {
			got:  lost.LeafDue(leaf, checks, c, epoch0.Add(day+c.Overlap)),
			want: "the CA has changed",
		},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", name, tt.got, tt.want)
		}
	}
	if got := a.LeafDue(leaf, Names{DNS: []string{"other.shop.svc"}}, c, epoch0); got == "" {
		t.Error("a leaf for another name is kept")
	}
}

func mustIssueFor(t *testing.T, i Issuer, names ...string) Pair {
	t.Helper()
	leaf, err := i.Issue(Names{DNS: names}, config(), epoch0, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestReadIssuer(t *testing.T) {
	a := mustIssuer(t, Issuer{}, epoch0)
	b, unrelated := mustIssuer(t, a, epoch0), mustIssuer(t, Issuer{}, epoch0)
	key, err := b.Pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	previous, cross := EncodeCertificates(b.Previous), EncodeCertificates(b.CrossCertificate)
	got, err := ReadIssuer(b.Pair.CertificatePEM(), key, previous, cross)
	if err != nil || got.CrossCertificate == nil || !got.Bundle(epoch0).Equal(b.Bundle(epoch0)) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = ReadIssuer(b.Pair.CertificatePEM(), key, EncodeCertificates(unrelated.Pair.Certificate()),
		cross); err != nil || got.CrossCertificate != nil {
		t.Errorf("a cross-certificate of another CA is used: %v, %v", got.CrossCertificate, err)
	}
	if _, err := ReadIssuer(a.Pair.CertificatePEM(), key, nil, nil); err == nil {
		t.Error("a key that is not the CA's is taken")
	}
}
