package integration

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// shown is what the API server shows to webhooks, by the address that it calls.
// It is the documentation's example, with addresses and files of the tests.
type shown struct {
	dir                       string
	certificate, token, basic string // addresses
	user, password            string
	ca, otherCA               []byte
}

var credentials *shown

func (s *shown) file(name string) string { return filepath.Join(s.dir, name) }

const (
	documentedFolder = "/etc/kubernetes/ostiary"
	documentedUser   = "ostiary-webhook.ostiary-system.svc:443"
	callerName       = "apiserver.example.test"
	callerToken      = "b3c1a5f0-4a43-4d0c-9c5e-6f4d1c1f8a70"
)

func newCredentials() (*shown, error) {
	dir, err := os.MkdirTemp("", "ostiary-callers-")
	if err != nil {
		return nil, err
	}
	s := &shown{dir: dir, certificate: cptest.FreeAddress(), token: cptest.FreeAddress(), basic: cptest.FreeAddress()}
	return s, errors.Join(s.writeCertificates(), os.WriteFile(s.file("token"), []byte(callerToken+"\n"), 0o600), s.writeDocumented())
}

// writeDocumented writes the configurations of the documentation.
func (s *shown) writeDocumented() error {
	page, err := os.ReadFile("../../docs/security/authentication.md")
	if err != nil {
		return err
	}
	page = bytes.ReplaceAll(page, []byte(documentedFolder), []byte(s.dir))
	all := clientcmdapi.NewConfig()
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "kind: AdmissionConfiguration") {
			if err := os.WriteFile(s.file("admission.yaml"), []byte(block), 0o600); err != nil {
				return err
			}
			continue
		}
		config, err := clientcmd.Load([]byte(block))
		if err != nil {
			return err
		}
		user := config.AuthInfos[documentedUser]
		switch {
		case user == nil:
			return fmt.Errorf("no user %s in %s", documentedUser, block)
		case user.ClientCertificate != "":
			all.AuthInfos[s.certificate] = user
		case user.TokenFile != "":
			all.AuthInfos[s.token] = user
		default:
			all.AuthInfos[s.basic], s.user, s.password = user, user.Username, user.Password
		}
	}
	if len(all.AuthInfos) != 3 {
		return fmt.Errorf("the documentation has %d ways, want 3", len(all.AuthInfos))
	}
	return clientcmd.WriteToFile(*all, s.file("kubeconfig"))
}

func (s *shown) writeCertificates() error {
	var ca *x509.Certificate
	var signer *ecdsa.PrivateKey
	for _, out := range []*[]byte{&s.otherCA, &s.ca} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "callers"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			return err
		}
		*out = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		ca, signer = template, key
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{callerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), signer)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.file("client.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}), 0o600),
		os.WriteFile(s.file("client.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
}

// mounted gives a file that is replaced as a whole, as Kubernetes does.
func (c *cluster) mounted(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(c.dir, name)
	must(t, os.WriteFile(file+".new", content, 0o600))
	must(t, os.Rename(file+".new", file))
	return file
}

// callerSecret writes a Secret that callers' credentials are read from.
func (c *cluster) callerSecret(t *testing.T, name string, data map[string]string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}, StringData: data}
	_ = c.Delete(t.Context(), s.DeepCopy())
	must(t, c.Create(t.Context(), s))
}

func (c *cluster) removeCallerSecrets() {
	for _, name := range []string{"ostiary-caller-token", "ostiary-caller-basic"} {
		_ = c.Delete(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}})
	}
}

// A caller with the required credentials is answered; for one without, the policy's
// failurePolicy decides. What is asked for changes without a restart.
func TestCallers(t *testing.T) {
	c := install(t)
	t.Cleanup(c.removeCallerSecrets)
	ca := c.mounted(t, "client-ca.crt", credentials.ca)
	c.callerSecret(t, "ostiary-caller-token", map[string]string{"token": callerToken})
	c.callerSecret(t, "ostiary-caller-basic", map[string]string{"username": credentials.user, "password": credentials.password})
	byCertificate := []string{"--client-ca=" + ca, "--client-names=another," + callerName}
	byToken, byBasic := "--caller-token-secret=ostiary-caller-token", "--caller-basic-secret=ostiary-caller-basic"
	tests := map[string]struct {
		address        string
		flags          []string
		revoke, accept func(*testing.T)
		wantReason     string
	}{
		"certificate": {
			address:    credentials.certificate,
			flags:      byCertificate,
			revoke:     func(t *testing.T) { c.mounted(t, "client-ca.crt", credentials.otherCA) },
			accept:     func(t *testing.T) { c.mounted(t, "client-ca.crt", append(credentials.otherCA, credentials.ca...)) },
			wantReason: "certificate",
		},
		"token": {
			address: credentials.token,
			flags:   []string{byToken},
			revoke: func(t *testing.T) {
				c.callerSecret(t, "ostiary-caller-token", map[string]string{"token": "another-" + callerToken})
			},
			accept: func(t *testing.T) {
				c.callerSecret(t, "ostiary-caller-token", map[string]string{"token": "another-" + callerToken, "next": callerToken})
			},
			wantReason: "token",
		},
		"user and password, beside the others": {
			address: credentials.basic,
			flags:   append([]string{byToken, byBasic}, byCertificate...),
			revoke: func(t *testing.T) {
				c.callerSecret(t, "ostiary-caller-basic", map[string]string{"username": credentials.user, "password": "another-" + callerToken})
			},
			accept: func(t *testing.T) {
				c.callerSecret(t, "ostiary-caller-basic", map[string]string{"username": credentials.user, "password": credentials.password})
			},
			wantReason: "password",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c.restarted(t, append([]string{"--webhook-url=https://" + tc.address, "--webhook-address=" + tc.address}, tc.flags...)...)
			m := c.manager(t)
			closed, open := c.namespace(t, nil), c.namespace(t, nil)
			policies := []string{"called-" + closed, "called-" + open}
			c.enforce(t, newPolicy(policies[0], closed), newPolicy(policies[1], open, failing(admissionregistrationv1.Ignore)))
			c.awaitDenied(t, closed, policies[0])
			c.awaitDenied(t, open, policies[1])
			must(t, c.probe(t.Context(), closed, good))

			tc.revoke(t)
			await(t).Eventually(func(g Gomega) {
				err := c.probe(t.Context(), closed, good)
				g.Expect(unreachable(err)).To(BeTrue(), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring("the server has asked for the client to provide credentials")))
				g.Expect(c.probe(t.Context(), open, bad)).To(Succeed())
			}).Should(Succeed())
			if n := m.series(t, fmt.Sprintf("ostiary_webhook_callers_rejected_total{reason=%q}", tc.wantReason)); n < 1 {
				t.Errorf("%v callers rejected for %s, want some", n, tc.wantReason)
			}
			must(t, m.ready(t.Context()))

			tc.accept(t)
			c.awaitDenied(t, closed, policies[0])
			c.awaitDenied(t, open, policies[1])
			c.wantNoCredential(t, m)
		})
	}
	t.Run("an API server that shows nothing", func(t *testing.T) {
		c.mounted(t, "client-ca.crt", credentials.ca)
		c.restarted(t, append([]string{byToken, byBasic}, byCertificate...)...)
		await(t).Eventually(func() error { return c.shared.ready(t.Context()) }).Should(Succeed())
		namespace := c.namespace(t, nil)
		c.apply(t, newPolicy("without-callers", namespace))
		await(t).Eventually(func(g Gomega) {
			p, err := c.policy(t.Context(), "without-callers")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(condition(p, v1alpha1.ConditionReachable).Message).To(ContainSubstring("the server has asked for the client to provide credentials"))
			g.Expect(condition(p, v1alpha1.ConditionReady).Status).To(Equal(metav1.ConditionFalse))
		}).Should(Succeed())
		if n := c.shared.series(t, `ostiary_webhook_callers_rejected_total{reason="no_credentials"}`); n < 1 {
			t.Errorf("%v callers rejected because they showed nothing, want some", n)
		}
	})
}

// wantNoCredential looks for credentials where they do not belong.
func (c *cluster) wantNoCredential(t *testing.T, m *process) {
	t.Helper()
	log, err := m.output()
	must(t, err)
	_, metrics, err := m.get(t.Context(), m.metrics, "/metrics")
	must(t, err)
	for where, text := range map[string]string{"log": log, "metrics": metrics} {
		for _, secret := range []string{callerToken, credentials.password} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has a credential in it", where)
			}
		}
	}
}

// What cannot be used is said before anything starts, in one line; what may still
// come makes a replica wait.
func TestInvalidClientCAs(t *testing.T) {
	c := install(t)
	for name, tc := range map[string]struct{ file, want string }{
		"a file that is not there": {filepath.Join(c.dir, "missing"), "no such file or directory"},
		"an empty file":            {c.mounted(t, "empty.crt", nil), "empty: write at least one certificate in PEM"},
		"no PEM":                   {c.mounted(t, "strange.crt", []byte("hello")), "not PEM"},
		"a certificate of no CA":   {credentials.file("client.crt"), "is not a CA"},
		"a key":                    {credentials.file("client.key"), "it contains a private key"},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.startAnother(t, "--client-ca="+tc.file, "--client-names=a")
			await(t).Eventually(m.done).Should(BeClosed())
			log, err := m.output()
			must(t, err)
			lines := strings.Split(strings.TrimSpace(log), "\n")
			if last := lines[len(lines)-1]; m.err == nil || !strings.HasPrefix(last, "ostiary: --client-ca "+tc.file+": ") ||
				!strings.Contains(last, tc.want) {
				t.Errorf("ended with %v and %q, want a failure and one line with %q", m.err, last, tc.want)
			}
		})
	}
	t.Run("an empty Secret", func(t *testing.T) {
		const secret = "ostiary-caller-token"
		t.Cleanup(c.removeCallerSecrets)
		c.callerSecret(t, secret, nil)
		m := c.startAnother(t, "--caller-token-secret="+secret)
		await(t).Eventually(func() error { return m.ready(t.Context()) }).Should(MatchError(ContainSubstring("[-]callers failed")))
		await(t).Eventually(m.output).Should(ContainSubstring("no token: set one of at least 16 bytes in the field token"))
		found := &corev1.Secret{}
		must(t, c.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: secret}, found))
		found.StringData = map[string]string{"token": callerToken}
		must(t, c.Update(t.Context(), found))
		await(t).Eventually(func() error {
			code, body, err := m.get(t.Context(), m.health, "/readyz/callers")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d: %s", code, body)
			}
			return err
		}).Should(Succeed())
	})
}
