package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// maxPEM bounds the input of the PEM decoder in bytes. The decoder's time grows
// faster than linearly.
const maxPEM = 64 << 10

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
	ecKeyBlock       = "EC PRIVATE KEY"
	rsaKeyBlock      = "RSA PRIVATE KEY"
	// paramsBlock precedes a key created by openssl and repeats its parameters.
	paramsBlock = "EC PARAMETERS"
)

// CertificatePEM returns the chain in PEM, leaf first.
func (p Pair) CertificatePEM() []byte { return EncodeCertificates(p.chain...) }

// KeyPEM returns the key in PEM, encoded as PKCS #8.
func (p Pair) KeyPEM() ([]byte, error) {
	if !p.HasKey() {
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

// ParseCertificates reads PEM certificates. It rejects input that is empty,
// exceeds 64 KiB or contains anything else.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	blocks, err := decode(data, certificateBlock)
	if err != nil {
		return nil, reject(ReasonEncoding, err)
	}
	certs := make([]*x509.Certificate, 0, len(blocks))
	for i, block := range blocks {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, reject(ReasonEncoding, fmt.Errorf("certificate %d: %w", i+1, err))
		}
		certs = append(certs, c)
	}
	return certs, nil
}

// ParseKey reads one private key from PEM: PKCS #8, SEC 1 or PKCS #1. Its errors
// reveal nothing about the content.
func ParseKey(data []byte) (crypto.Signer, error) {
	blocks, err := decode(data, keyBlock, ecKeyBlock, rsaKeyBlock, paramsBlock)
	if err != nil {
		return nil, reject(ReasonEncoding, err)
	}
	blocks = slices.DeleteFunc(blocks, func(b *pem.Block) bool { return b.Type == paramsBlock })
	if len(blocks) != 1 {
		return nil, reject(ReasonEncoding, fmt.Errorf("%d keys: expected one", len(blocks)))
	}
	if len(blocks[0].Headers) > 0 {
		return nil, reject(ReasonEncoding, errors.New("the key is encrypted: store it without a passphrase"))
	}
	return parseKey(blocks[0])
}

func parseKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	form := "PKCS #8"
	switch block.Type {
	case ecKeyBlock:
		form = "SEC 1"
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case rsaKeyBlock:
		form = "PKCS #1"
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, reject(ReasonEncoding, fmt.Errorf("not a %s private key", form))
	}
	signer, _ := key.(crypto.Signer)
	if err := checkKey(signer); err != nil {
		return nil, reject(ReasonKey, err)
	}
	return signer, nil
}

func decode(data []byte, types ...string) ([]*pem.Block, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("%d bytes of PEM: the limit is %d", len(data), maxPEM)
	}
	var blocks []*pem.Block
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if !bytes.HasPrefix(rest, []byte("-----BEGIN ")) {
			return nil, fmt.Errorf("text that is not PEM after %d blocks", len(blocks))
		}
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("block %d is not PEM", len(blocks)+1)
		}
		if !slices.Contains(types, block.Type) {
			return nil, fmt.Errorf("block %d is not of type %q", len(blocks)+1, types[0])
		}
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		return nil, errors.New("empty")
	}
	return blocks, nil
}
