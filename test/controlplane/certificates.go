package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Identities that the control plane's own clients have.
const (
	adminUser   = "kubernetes-admin"
	adminGroup  = "system:masters"
	managerUser = "system:kube-controller-manager"
	etcdUser    = "kube-apiserver-etcd-client"
)

// serviceRange holds the cluster IPs; kubernetesIP is that of the service kubernetes.default.
const (
	serviceRange = "10.96.0.0/16"
	kubernetesIP = "10.96.0.1"
)

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

// certificates are what the processes and their clients identify themselves with.
type certificates struct {
	ca                                  []byte
	serving, admin, manager, etcdClient keyPair
	serviceAccountKey                   []byte

	authority    *x509.Certificate
	authorityKey crypto.Signer
}

// newCertificates makes them all; the serving certificate is for loopback, and
// for one more address if that is not "".
func newCertificates(advertised string) (*certificates, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ostiary control plane"}, key)
	if err != nil {
		return nil, fmt.Errorf("making the CA certificate: %w", err)
	}
	c := &certificates{ca: pemOf(ca), authority: ca, authorityKey: key}
	for _, issue := range []struct {
		into     *keyPair
		template x509.Certificate
	}{
		{&c.serving, servingTemplate(advertised)},
		{&c.admin, clientTemplate(adminUser, adminGroup)},
		{&c.manager, clientTemplate(managerUser)},
		{&c.etcdClient, clientTemplate(etcdUser)},
	} {
		if *issue.into, err = c.issue(issue.template); err != nil {
			return nil, err
		}
	}
	accountKey, err := newKey()
	if err != nil {
		return nil, err
	}
	c.serviceAccountKey, err = keyutil.MarshalPrivateKeyToPEM(accountKey)
	if err != nil {
		return nil, fmt.Errorf("encoding the service account key: %w", err)
	}
	return c, nil
}

func servingTemplate(advertised string) x509.Certificate {
	addresses := []net.IP{net.ParseIP(loopback), net.ParseIP(kubernetesIP)}
	if advertised != "" {
		addresses = append(addresses, net.ParseIP(advertised))
	}
	return x509.Certificate{
		Subject:     pkix.Name{CommonName: APIServer},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: addresses,
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
	}
}

func clientTemplate(user string, groups ...string) x509.Certificate {
	return x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func (c *certificates) issue(template x509.Certificate) (keyPair, error) {
	key, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(365*24*time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &template, c.authority, key.Public(), c.authorityKey)
	if err != nil {
		return keyPair{}, fmt.Errorf("making the certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("encoding the key of %s: %w", template.Subject.CommonName, err)
	}
	return keyPair{cert: pemOf(&x509.Certificate{Raw: der}), key: keyPEM}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

func pemOf(c *x509.Certificate) []byte {
	out, _ := cert.EncodeCertificates(c) // writes to memory: it has no error to return
	return out
}

// Files in the directory.
const (
	caFile             = "ca.crt"
	servingCertFile    = "serving.crt"
	servingKeyFile     = "serving.key"
	etcdClientCertFile = "etcd-client.crt"
	etcdClientKeyFile  = "etcd-client.key"
	adminCertFile      = "admin.crt"
	adminKeyFile       = "admin.key"
	accountKeyFile     = "service-account.key"
)

func (c *certificates) write(dir string) error {
	files := map[string][]byte{
		caFile: c.ca, accountKeyFile: c.serviceAccountKey,
		servingCertFile: c.serving.cert, servingKeyFile: c.serving.key,
		etcdClientCertFile: c.etcdClient.cert, etcdClientKeyFile: c.etcdClient.key,
		adminCertFile: c.admin.cert, adminKeyFile: c.admin.key,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing the certificates: %w", err)
		}
	}
	return nil
}
