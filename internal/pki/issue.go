package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"
)

// caPathLength leaves room for one CA below the root: the certificate by which
// a CA will vouch for the one that follows it.
const caPathLength = 1

// newCA makes a self-signed CA that can sign for the names and no others.
func newCA(names Names, c Config, now time.Time, random io.Reader) (Pair, error) {
	key, serial, err := newKey(random)
	if err != nil {
		return Pair{}, err
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return Pair{}, err
	}
	now = now.UTC().Truncate(time.Second)
	t := &x509.Certificate{
		SerialNumber: serial,
		// Two CAs that are trusted together must not share a name: a verifier
		// looks for an issuer by name.
		Subject:               pkix.Name{CommonName: "ostiary-ca-" + hex.EncodeToString(id[:8])},
		SubjectKeyId:          id,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(c.CALifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            caPathLength,
	}
	constrain(t, names.canonical())
	return sign(t, t, key, key, nil)
}

// constrain limits a CA to the names. A kind of name that is not constrained
// is free, so the kind that is not used at all is excluded.
func constrain(ca *x509.Certificate, names Names) {
	ca.PermittedDNSDomainsCritical = true
	ca.PermittedDNSDomains = names.DNS
	if ca.PermittedIPRanges = names.ipNets(); len(names.IPs) == 0 {
		ca.ExcludedIPRanges = allIPNets()
	}
	if len(names.DNS) == 0 {
		ca.ExcludedDNSDomains = []string{""}
	}
}

// newLeaf makes a server certificate for the names, signed by the CA.
func newLeaf(ca Pair, names Names, c Config, now time.Time, random io.Reader) (Pair, error) {
	key, serial, err := newKey(random)
	if err != nil {
		return Pair{}, err
	}
	root := ca.Certificate()
	now = now.UTC().Truncate(time.Second)
	notAfter := now.Add(c.LeafLifetime)
	if notAfter.After(root.NotAfter) {
		notAfter = root.NotAfter
	}
	names = names.canonical()
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "ostiary"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              names.DNS,
		IPAddresses:           names.IPs,
	}
	return sign(t, root, key, ca.key, ca.chain[1:])
}

func sign(t, parent *x509.Certificate, key, signer *ecdsa.PrivateKey, rest []*x509.Certificate) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, fmt.Errorf("reading the signed certificate: %w", err)
	}
	return NewPair(append([]*x509.Certificate{cert}, rest...), key)
}

// newKey draws a key and a serial number of 128 bits. Go takes the key from
// the system's generator whatever the reader is; the serial number is what the
// reader decides.
func newKey(random io.Reader) (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	serial := new(big.Int).SetBytes(b[:])
	if serial.Sign() == 0 {
		return nil, nil, errors.New("drawing a serial number: the source of randomness gave zeros")
	}
	return key, serial, nil
}

func keyID(key *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return sum[:20], nil
}
