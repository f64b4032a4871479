package certificates

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/internal/pki"
)

// The fields of the two Secrets. Certificates and keys are in Kubernetes' fields
// of TLS Secrets.
const (
	chainField = corev1.TLSCertKey
	keyField   = corev1.TLSPrivateKeyKey
	// bundleField is the trust bundle, in the serving Secret.
	bundleField = "ca.crt"
	// trustEpochField is the epoch of the trust bundle. It exceeds the leaf's
	// while a new CA is being published.
	trustEpochField = "trust-epoch"
	// previousField is the previous CA, in the CA's Secret, while it is trusted,
	// and crossCertificateField is the current CA certified by it.
	previousField         = "previous.crt"
	crossCertificateField = "cross.crt"
	// previousRemovedField is when trust in the previous CA ended.
	previousRemovedField = "previous-removed"
	// lastRequestField is the value of the annotation that requested this CA.
	lastRequestField = "last-request"
	// pathField is the secret path of the CA, in the CA's Secret, and pathsField
	// are those that replicas accept, in the serving Secret.
	pathField  = "path"
	pathsField = "paths"
	// epochField counts the CAs. It is a field, not an annotation, so that a
	// restore includes it.
	epochField = "epoch"

	// RotateAnnotation, on the CA's Secret, requests a rotation with every new
	// value.
	RotateAnnotation = "admission.ostiary.dev/rotate"
	// maxRequest bounds the used part of its value, in bytes.
	maxRequest = 256
)

// inField adds the field of a Secret to an error, but never its content.
func inField(field string, err error) error { return fmt.Errorf("field %s: %w", field, err) }

func readPair(s *corev1.Secret, parse func([]byte) ([]*x509.Certificate, error)) (pki.Pair, error) {
	chain, err := parse(s.Data[chainField])
	if err != nil {
		return pki.Pair{}, inField(chainField, err)
	}
	key, err := pki.ParseKey(s.Data[keyField])
	if err != nil {
		return pki.Pair{}, inField(keyField, err)
	}
	pair, err := pki.NewPair(chain, key)
	if err != nil {
		return pki.Pair{}, inField(keyField, err)
	}
	return pair, nil
}

// readCA reads a CA. It has no key if the issuer is external.
func readCA(s *corev1.Secret) (pki.Pair, error) {
	if len(s.Data[keyField]) > 0 || len(s.Data[chainField]) == 0 {
		return readPair(s, pki.ParseCertificates)
	}
	ca, err := readOne(s, chainField)
	if err != nil {
		return pki.Pair{}, err
	}
	return pki.NewRoot(ca), nil
}

func readBundle(s *corev1.Secret) (pki.Bundle, error) {
	bundle, err := pki.ParseBundle(s.Data[bundleField])
	if err != nil {
		return pki.Bundle{}, inField(bundleField, err)
	}
	return bundle, nil
}

func readEpoch(s *corev1.Secret, field string) (int64, error) {
	epoch, err := strconv.ParseInt(string(s.Data[field]), 10, 64)
	if err != nil || epoch < 0 || epoch > pki.MaxEpoch {
		return 0, inField(field, errors.New("not an epoch: expected a number"))
	}
	return epoch, nil
}

// readOne reads an optional field with one certificate.
func readOne(s *corev1.Secret, field string) (*x509.Certificate, error) {
	data, ok := s.Data[field]
	if !ok {
		return nil, nil
	}
	certs, err := pki.ParseCertificates(data)
	if err == nil && len(certs) != 1 {
		err = fmt.Errorf("%d certificates: expected one", len(certs))
	}
	if err != nil {
		return nil, inField(field, err)
	}
	return certs[0], nil
}

func readPreviousRemoved(s *corev1.Secret) (time.Time, error) {
	data, ok := s.Data[previousRemovedField]
	if !ok {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, string(data))
	if err != nil {
		return time.Time{}, inField(previousRemovedField, errors.New("not a time in RFC 3339"))
	}
	return at, nil
}

func readPath(s *corev1.Secret) (string, error) {
	path := string(s.Data[pathField])
	if err := pki.CheckPath(path); err != nil {
		return "", inField(pathField, err)
	}
	return path, nil
}

func readPaths(s *corev1.Secret) ([]string, error) {
	paths, err := pki.ParsePaths(string(s.Data[pathsField]))
	if err != nil {
		return nil, inField(pathsField, err)
	}
	return paths, nil
}

// readAuthority reads the CA's Secret; the error lists the invalid fields. One
// invalid field makes the CA unusable, because replicas may still need what is
// missing; the epoch is returned nevertheless. A nil Secret reads as the zero
// Authority.
func readAuthority(s *corev1.Secret) (pki.Authority, error) {
	if s == nil {
		return pki.Authority{}, nil
	}
	var a pki.Authority
	var errs [6]error
	a.Pair, errs[0] = readCA(s)
	a.Previous, errs[1] = readOne(s, previousField)
	a.CrossCertificate, errs[2] = readOne(s, crossCertificateField)
	a.PreviousRemoved, errs[3] = readPreviousRemoved(s)
	a.Epoch, errs[4] = readEpoch(s, epochField)
	a.Path, errs[5] = readPath(s)
	a.LastRequest = string(s.Data[lastRequestField])
	if err := errors.Join(errs[:]...); err != nil {
		return pki.Authority{Epoch: a.Epoch}, err
	}
	return a, nil
}

// readServing reads the valid fields of the serving Secret; the error lists the
// others.
func readServing(s *corev1.Secret) (pki.Serving, error) {
	if s == nil {
		return pki.Serving{}, nil
	}
	var v pki.Serving
	var errs [5]error
	v.Pair, errs[0] = readPair(s, pki.ParseCertificates)
	v.Bundle, errs[1] = readBundle(s)
	v.Epoch, errs[2] = readEpoch(s, epochField)
	v.TrustEpoch = v.Epoch // as older versions had it
	if _, ok := s.Data[trustEpochField]; ok {
		v.TrustEpoch, errs[3] = readEpoch(s, trustEpochField)
	}
	v.Paths, errs[4] = readPaths(s)
	return v, errors.Join(errs[:]...)
}

// readStored is readServing for the writer: a bundle that is not in canonical form
// counts as invalid, so that it is rewritten.
func readStored(s *corev1.Secret) (pki.Serving, error) {
	v, err := readServing(s)
	if s != nil && len(v.Bundle.PEM()) > 0 && !bytes.Equal(v.Bundle.PEM(), s.Data[bundleField]) {
		v.Bundle, err = pki.Bundle{}, errors.Join(err, inField(bundleField, errors.New("not in the canonical form")))
	}
	return v, err
}

// RequestedRotation returns the value of the annotation that requests a new CA; ""
// without a Secret or an annotation.
func RequestedRotation(s *corev1.Secret) string {
	if s == nil {
		return ""
	}
	value := s.Annotations[RotateAnnotation]
	return value[:min(len(value), maxRequest)]
}

func authorityData(a pki.Authority) (map[string][]byte, error) {
	data, err := pairData(a.Pair, a.Epoch)
	if err != nil {
		return nil, err
	}
	data[pathField] = []byte(a.Path)
	if a.Previous != nil {
		data[previousField] = pki.EncodeCertificates(a.Previous)
	}
	if a.CrossCertificate != nil {
		data[crossCertificateField] = pki.EncodeCertificates(a.CrossCertificate)
	}
	if !a.PreviousRemoved.IsZero() {
		data[previousRemovedField] = []byte(a.PreviousRemoved.UTC().Format(time.RFC3339))
	}
	if a.LastRequest != "" {
		data[lastRequestField] = []byte(a.LastRequest)
	}
	return data, nil
}

// servingData may have no leaf: while a new CA is being published, replicas keep
// theirs.
func servingData(s pki.Serving) (map[string][]byte, error) {
	data, err := pairData(s.Pair, s.Epoch)
	if err != nil {
		return nil, err
	}
	data[bundleField] = s.Bundle.PEM()
	data[pathsField] = []byte(strings.Join(s.Paths, "\n"))
	data[trustEpochField] = strconv.AppendInt(nil, s.TrustEpoch, 10)
	return data, nil
}

func pairData(p pki.Pair, epoch int64) (map[string][]byte, error) {
	data := map[string][]byte{chainField: {}, keyField: {}, epochField: strconv.AppendInt(nil, epoch, 10)}
	if p.IsZero() {
		return data, nil
	}
	if data[chainField] = p.CertificatePEM(); !p.HasKey() {
		return data, nil
	}
	key, err := p.KeyPEM()
	if err != nil {
		return nil, err
	}
	data[keyField] = key
	return data, nil
}
