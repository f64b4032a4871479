package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxPEM bounds what is handed to the PEM decoder, whose time grows faster
// than its input.
const maxPEM = 64 << 10

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// CertificatePEM returns the chain, leaf first.
func (p Pair) CertificatePEM() []byte { return EncodeCertificates(p.chain...) }

// KeyPEM returns the key as PKCS #8.
func (p Pair) KeyPEM() ([]byte, error) {
	if p.IsZero() {
		return nil, errors.New("encoding the private key: there is none")
	}
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// EncodeCertificates returns the certificates as PEM, in the given order.
func EncodeCertificates(certs ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw}))
	}
	return b.Bytes()
}

// ParseCertificates reads PEM certificates. It refuses input that is empty,
// larger than 64 KiB, or holds anything else.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	blocks, err := decode(data, certificateBlock)
	if err != nil {
		return nil, reject(ReasonEncoding, err)
	}
	certs := make([]*x509.Certificate, 0, len(blocks))
	for i, der := range blocks {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, reject(ReasonEncoding, fmt.Errorf("certificate %d: %w", i+1, err))
		}
		certs = append(certs, c)
	}
	return certs, nil
}

// ParseKey reads one ECDSA key from PEM, as PKCS #8. Its errors say nothing
// about the content, not even what the decoder stumbled over.
func ParseKey(data []byte) (*ecdsa.PrivateKey, error) {
	blocks, err := decode(data, keyBlock)
	if err != nil {
		return nil, reject(ReasonEncoding, err)
	}
	if len(blocks) != 1 {
		return nil, reject(ReasonEncoding, fmt.Errorf("%d keys where one is expected", len(blocks)))
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[0])
	if err != nil {
		return nil, reject(ReasonEncoding, errors.New("not a PKCS #8 private key"))
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, reject(ReasonKey, errors.New("not an ECDSA key"))
	}
	return ec, nil
}

func decode(data []byte, blockType string) ([][]byte, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("%d bytes of PEM: at most %d are read", len(data), maxPEM)
	}
	var blocks [][]byte
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if !bytes.HasPrefix(rest, []byte("-----BEGIN ")) {
			return nil, fmt.Errorf("something that is not PEM stands after %d blocks", len(blocks))
		}
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("block %d is not PEM", len(blocks)+1)
		}
		if block.Type != blockType {
			return nil, fmt.Errorf("block %d is not of type %q", len(blocks)+1, blockType)
		}
		blocks = append(blocks, block.Bytes)
	}
	if len(blocks) == 0 {
		return nil, errors.New("empty")
	}
	return blocks, nil
}
