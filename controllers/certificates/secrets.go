package certificates

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/internal/pki"
)

// What the two Secrets hold. Both have a certificate chain and its key under
// the names that Kubernetes gives them.
const (
	chainField = corev1.TLSCertKey
	keyField   = corev1.TLSPrivateKeyKey
	// bundleField is the trust bundle, in the serving Secret.
	bundleField = "ca.crt"
	// previousField is the CA that the current one follows, in the CA's Secret.
	previousField = "previous.crt"
	// epochField counts the CAs. It is content, not an annotation, so that it
	// is restored together with the certificates it counts.
	epochField = "epoch"

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "ostiary"
)

// inField says which field of a Secret an error is about. The content of the
// field is never part of the message.
func inField(field string, err error) error { return fmt.Errorf("field %s: %w", field, err) }

func readPair(s *corev1.Secret) (pki.Pair, error) {
	chain, err := pki.ParseCertificates(s.Data[chainField])
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

func readBundle(s *corev1.Secret) (pki.Bundle, error) {
	bundle, err := pki.ParseBundle(s.Data[bundleField])
	if err != nil {
		return pki.Bundle{}, inField(bundleField, err)
	}
	return bundle, nil
}

func readEpoch(s *corev1.Secret) (int64, error) {
	epoch, err := strconv.ParseInt(string(s.Data[epochField]), 10, 64)
	if err != nil || epoch < 0 || epoch > pki.MaxEpoch {
		return 0, inField(epochField, errors.New("not a count of CAs"))
	}
	return epoch, nil
}

func readPrevious(s *corev1.Secret) (*x509.Certificate, error) {
	data, ok := s.Data[previousField]
	if !ok {
		return nil, nil // the first CA follows none
	}
	certs, err := pki.ParseCertificates(data)
	if err == nil && len(certs) != 1 {
		err = fmt.Errorf("%d certificates where one is expected", len(certs))
	}
	if err != nil {
		return nil, inField(previousField, err)
	}
	return certs[0], nil
}

// readAuthority reads what can be read of the CA's Secret; the error lists the
// fields that cannot. A Secret that does not exist is nil and reads as nothing.
func readAuthority(s *corev1.Secret) (pki.Authority, error) {
	if s == nil {
		return pki.Authority{}, nil
	}
	pair, pairErr := readPair(s)
	previous, previousErr := readPrevious(s)
	epoch, epochErr := readEpoch(s)
	return pki.Authority{Pair: pair, Previous: previous, Epoch: epoch}, errors.Join(pairErr, previousErr, epochErr)
}

// readServing is readAuthority for the serving Secret. A bundle whose bytes
// are not the canonical ones counts as unreadable, so that it is rewritten.
func readServing(s *corev1.Secret) (pki.Serving, error) {
	if s == nil {
		return pki.Serving{}, nil
	}
	pair, pairErr := readPair(s)
	bundle, bundleErr := readBundle(s)
	if bundleErr == nil && !bytes.Equal(bundle.PEM(), s.Data[bundleField]) {
		bundle, bundleErr = pki.Bundle{}, inField(bundleField, errors.New("not in the canonical form"))
	}
	epoch, epochErr := readEpoch(s)
	return pki.Serving{Pair: pair, Bundle: bundle, Epoch: epoch}, errors.Join(pairErr, bundleErr, epochErr)
}

func authorityData(a pki.Authority) (map[string][]byte, error) {
	data, err := pairData(a.Pair, a.Epoch)
	if err == nil && a.Previous != nil {
		data[previousField] = pki.EncodeCertificates(a.Previous)
	}
	return data, err
}

func servingData(s pki.Serving) (map[string][]byte, error) {
	data, err := pairData(s.Pair, s.Epoch)
	if err == nil {
		data[bundleField] = s.Bundle.PEM()
	}
	return data, err
}

func pairData(p pki.Pair, epoch int64) (map[string][]byte, error) {
	key, err := p.KeyPEM()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		chainField: p.CertificatePEM(),
		keyField:   key,
		epochField: strconv.AppendInt(nil, epoch, 10),
	}, nil
}
