package pki

import (
	"crypto"
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
)

// caPathLength allows one CA below the root: the cross-certificate of the next CA.
const caPathLength = 1

// newCA creates a self-signed CA that is constrained to the names.
func newCA(names Names, c Config, clocks Clocks, random io.Reader) (Pair, error) {
	key, serial, err := newKey(random)
	if err != nil {
		return Pair{}, err
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return Pair{}, err
	}
	notBefore, notAfter := c.validity(clocks, c.CALifetime)
	t := &x509.Certificate{
		SerialNumber: serial,
		// Verifiers find issuers by name, so two trusted CAs need different names.
		Subject:               pkix.Name{CommonName: "ostiary-ca-" + hex.EncodeToString(id[:8])},
		SubjectKeyId:          id,
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            caPathLength,
	}
	constrain(t, names.canonical())
	return sign(t, t, key, key, nil)
}

// constrain limits a CA to the names. An unused kind of name is excluded, because
// a kind without constraints is unlimited.
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

// newCrossCertificate certifies the key and the name of the next CA with the key
// of the previous one. It is constrained to the same names and can sign only
// leaves.
func newCrossCertificate(before, next Pair, random io.Reader) (*x509.Certificate, error) {
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	signer, ca := before.Certificate(), next.Certificate()
	t := &x509.Certificate{
		SerialNumber:                serial,
		Subject:                     ca.Subject,
		SubjectKeyId:                ca.SubjectKeyId,
		NotBefore:                   ca.NotBefore,
		NotAfter:                    earliest(ca.NotAfter, signer.NotAfter),
		KeyUsage:                    ca.KeyUsage,
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         ca.PermittedDNSDomains,
		ExcludedDNSDomains:          ca.ExcludedDNSDomains,
		PermittedIPRanges:           ca.PermittedIPRanges,
		ExcludedIPRanges:            ca.ExcludedIPRanges,
	}
	return certify(t, signer, next.key.Public(), before.key)
}

// newLeaf creates a server certificate for the names, signed by the CA.
func newLeaf(ca Authority, names Names, c Config, clocks Clocks, random io.Reader) (Pair, error) {
	key, serial, err := newKey(random)
	if err != nil {
		return Pair{}, err
	}
	root := ca.Pair.Certificate()
	notBefore, notAfter := c.validity(clocks, c.LeafLifetime)
	names = names.canonical()
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "ostiary"},
		NotBefore:             notBefore,
		NotAfter:              earliest(notAfter, root.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              names.DNS,
		IPAddresses:           names.IPs,
	}
	var rest []*x509.Certificate
	if ca.CrossCertificate != nil {
		rest = append(rest, ca.CrossCertificate)
	}
	return sign(t, root, key, ca.Pair.key, rest)
}

func sign(t, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer, rest []*x509.Certificate) (Pair, error) {
	cert, err := certify(t, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, err
	}
	return NewPair(append([]*x509.Certificate{cert}, rest...), key)
}

func certify(t, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key, signer)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the signed certificate: %w", err)
	}
	return cert, nil
}

// newKey generates a key and a serial number of 128 bits. Go reads the key from
// the system's generator and ignores the reader; only the serial number depends on
// the reader.
func newKey(random io.Reader) (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, nil, err
	}
	return key, serial, nil
}

func newSerial(random io.Reader) (*big.Int, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return nil, fmt.Errorf("generating a serial number: %w", err)
	}
	serial := new(big.Int).SetBytes(b[:])
	if serial.Sign() == 0 {
		return nil, errors.New("generating a serial number: the random source returned zeros")
	}
	return serial, nil
}

func keyID(key *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return sum[:20], nil
}
