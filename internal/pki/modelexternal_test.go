package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"testing"
)

// modelSource is an external issuer that signs with a new CA, an earlier one or
// none, or stops.
type modelSource struct {
	external ExternalCertificate
	cas      []Pair
	// mixed lets leaders disagree on whether to use it. The CA is not deleted then: what one
	// leader remembers of it is of no use to the other, so that API servers that are behind
	// can refuse the certificate of the next one.
	mixed bool
}

func newExternalModel(t testing.TB, seed uint64, next machine, mixed bool) *model {
	m := newModel(t, seed, next)
	m.source = &modelSource{mixed: mixed}
	m.source.issue(m, m.source.newCA(m), nil)
	for i := range m.leaders {
		m.leaders[i].external = !mixed || m.r.IntN(2) == 0
	}
	return m
}

func (s *modelSource) change(m *model) {
	ca := s.cas[len(s.cas)-1]
	switch m.r.IntN(9) {
	case 0, 1:
		m.logf("the leaf is renewed by the same CA")
		s.issue(m, ca, nil)
	case 2, 3:
		m.logf("the leaf is issued by another CA")
		s.issue(m, s.newCA(m), nil)
	case 4:
		m.logf("the leaf is self-signed")
		self := certified(m, leafTemplate("self"), nil, nil)
		s.external = ExternalCertificate{Pair: self, Roots: self.chain}
	case 5:
		m.logf("the leaf is issued by a CA of before")
		ca := s.cas[m.r.IntN(len(s.cas))]
		s.cas = append(s.cas, ca)
		s.issue(m, ca, nil)
	case 6:
		m.logf("the certificate of the CA is renewed, with the same key")
		renewed := certified(m, caTemplate(ca.Certificate().Subject.CommonName), nil, ca.key.(*ecdsa.PrivateKey))
		s.cas = append(s.cas, renewed)
		s.issue(m, renewed, nil)
	case 7:
		m.logf("the leaf is issued by an intermediate")
		s.issue(m, ca, []Pair{certified(m, caTemplate("intermediate"), &ca, nil)})
	case 8:
		s.fault(m)
	}
}

func (s *modelSource) fault(m *model) {
	if s.mixed && m.r.IntN(2) == 0 {
		l := m.r.IntN(modelLeaders)
		m.leaders[l].external = !m.leaders[l].external
		m.logf("leader %d uses an external issuer: %t", l, m.leaders[l].external)
		return
	}
	if m.r.IntN(2) == 0 {
		m.logf("the leaf beside a CA that it is not of")
		s.external.Roots = certified(m, caTemplate("unrelated"), nil, nil).chain
		return
	}
	m.logf("there is no leaf")
	s.external = ExternalCertificate{Err: errors.New("gone")}
}

func (s *modelSource) heal(m *model) {
	for i := range m.leaders {
		m.leaders[i].external = m.leaders[0].external
	}
	if _, err := s.external.anchor(nil, clocksAt(m.now), names); err != nil {
		s.issue(m, s.cas[len(s.cas)-1], nil)
	}
}

func (s *modelSource) newCA(m *model) Pair {
	ca := certified(m, caTemplate("external"), nil, nil)
	s.cas = append(s.cas, ca)
	return ca
}

func (s *modelSource) issue(m *model, ca Pair, between []Pair) {
	signer := ca
	if len(between) > 0 {
		signer = between[0]
	}
	leaf := certified(m, leafTemplate("leaf"), &signer, nil)
	for _, b := range between {
		leaf.chain = append(leaf.chain, b.Certificate())
	}
	s.external = ExternalCertificate{Pair: leaf, Roots: ca.chain}
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

func leafTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: names.DNS, IPAddresses: names.IPs,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// certified is a certificate of a signer, or of itself, with a key or a new one.
func certified(m *model, template *x509.Certificate, signer *Pair, key *ecdsa.PrivateKey) Pair {
	m.t.Helper()
	fresh, serial, err := newKey(rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	if key == nil {
		key = fresh
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = m.now.Add(-day), m.now.Add(90*day)
	parent, parentKey := template, key
	if signer != nil {
		parent, parentKey = signer.Certificate(), signer.key.(*ecdsa.PrivateKey)
	}
	pair, err := sign(template, parent, key, parentKey, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return pair
}

func TestModelExternal(t *testing.T) {
	for name, mixed := range map[string]bool{"external issuer": false, "leaders disagree": true} {
		t.Run(name, func(t *testing.T) {
			seed, walks := mathrand.Uint64(), modelWalks(t, 6)
			var rotations int64
			for i := range walks {
				m := newExternalModel(t, seed+uint64(i), Next, mixed)
				m.real = i%3 == 0
				if failure := m.walk(250); failure != "" {
					t.Fatalf("seed %d: %s\n%s", seed+uint64(i), failure, strings.Join(m.log, "\n"))
				}
				rotations += m.stored.CA.Epoch - 1
			}
			t.Logf("%d walks, %d rotations", walks, rotations)
			if rotations < int64(walks) {
				t.Errorf("%d rotations in %d walks: the model covers too few", rotations, walks)
			}
		})
	}
}

func TestModelCatchesExternal(t *testing.T) {
	mutants := map[string]machine{
		"use before trust": func(s State, o Observed, n Names, c Config) Action {
			o.Published.Current, o.Published.For = true, c.Overlap
			return Next(s, o, n, c)
		},
		"a third CA while replicas differ": func(s State, o Observed, n Names, c Config) Action {
			if o.External != nil {
				o.Replicas = nil
			}
			return Next(s, o, n, c)
		},
		"drop the CA before": func(s State, o Observed, n Names, c Config) Action {
			a := Next(s, o, n, c)
			if a.Kind == Wait && s.Phase() == PhaseServing {
				return Action{Kind: Retire}
			}
			return a
		},
	}
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				m := newExternalModel(t, seed, mutant, false)
				m.faultless = true
				if failure := m.run(1000); strings.HasPrefix(failure, "I1") {
					t.Logf("caught in walk %d: %s", seed+1, failure)
					return
				}
			}
			t.Error("the model does not notice")
		})
	}
}
