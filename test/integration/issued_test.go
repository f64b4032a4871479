package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// issued makes a backend of a Service that has Ostiary issue its certificate.
func issued(service *v1alpha1.BackendService) func(*v1alpha1.Backend) {
	return func(b *v1alpha1.Backend) {
		b.URL, b.Service = "", service
		b.CABundle, b.Certificate = nil, &v1alpha1.BackendCertificate{SecretName: "checks-tls"}
	}
}

// issuedSecret reads a Secret; it is empty where there is none.
func (c *cluster) issuedSecret(ctx context.Context, namespace, name string) *corev1.Secret {
	s := &corev1.Secret{}
	_ = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
	return s
}

// mount has the foreign webhook serve what the Secret holds, as a pod that
// follows its volume does, until the test ends.
func (c *cluster) mount(ctx context.Context, f *foreign, namespace string) {
	go func() {
		var last string
		for ctx.Err() == nil {
			s := c.issuedSecret(ctx, namespace, "checks-tls")
			if chain := string(s.Data[corev1.TLSCertKey]); chain != "" && chain != last {
				if pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err == nil {
					f.serving.Store(&pair)
					last = chain
				}
			}
			time.Sleep(interval)
		}
	}()
}

// Promise: Ostiary issues the certificate of a Service and rotates it, and the
// CA, without a request that fails.
func TestExternalWebhookWithAnIssuedCertificate(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	service, address := c.service(t, namespace, "checks")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := startForeign(t, address, newAuthority(t, nextYear()).leaf(t))
	f.server.SetKeepAlivesEnabled(false) // a connection in use is not verified again
	c.mount(ctx, f, namespace)
	c.apply(t, newPolicy("issued", namespace, hostedBy(f, "", issued(service))))
	object := "Secret " + namespace + "/checks-tls"
	c.awaitCA(t, "issued", metav1.ConditionFalse, "Forbidden",
		fmt.Sprintf("Ostiary may not write a certificate to %s: create a Role in namespace %s with the rule "+
			`{apiGroups: [""], resources: [secrets], resourceNames: [checks-tls], verbs: [get, list, watch, create, patch]}, `+
			`and bind it to the ServiceAccount ostiary-system/ostiary`, object, namespace))
	c.grant(t, namespace, "keep-certificate")
	c.awaitReady(t, "issued")
	c.awaitForeign(t, namespace)
	c.awaitCA(t, "issued", metav1.ConditionTrue, "Read", object+" holds a certificate for checks."+namespace+".svc, valid until ")
	first := c.issuedSecret(ctx, namespace, "checks-tls")
	if first.Type != corev1.SecretTypeTLS || len(first.Data["ca.crt"]) == 0 {
		t.Errorf("Secret of type %s with a ca.crt of %d bytes", first.Type, len(first.Data["ca.crt"]))
	}

	stop := c.load(ctx, namespace)
	t.Run("the leaf is lost", func(t *testing.T) {
		must(t, c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "checks-tls"}}))
		c.awaitLeaf(t, namespace, string(first.Data[corev1.TLSCertKey]))
		c.awaitBundle(t, "issued", string(first.Data["ca.crt"]))
	})
	t.Run("the leaf is damaged", func(t *testing.T) {
		before := c.issuedSecret(ctx, namespace, "checks-tls")
		patch := []byte(`{"data": {"tls.crt": "bm90aGluZw=="}}`)
		must(t, c.Patch(ctx, before.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
		c.awaitLeaf(t, namespace, string(before.Data[corev1.TLSCertKey]))
	})
	t.Run("the CA is lost", func(t *testing.T) {
		before := c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca")
		must(t, c.Delete(ctx, before.DeepCopy()))
		c.change(t, "issued", within(6)) // a reason to look
		await(t).Eventually(func() string {
			return string(c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca").Data[corev1.TLSCertKey])
		}).
			Should(Equal(string(before.Data[corev1.TLSCertKey])), "it is put back from memory")
	})
	t.Run("the CA is replaced", func(t *testing.T) {
		leaf := string(c.issuedSecret(ctx, namespace, "checks-tls").Data[corev1.TLSCertKey])
		ca := c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca")
		patch := []byte(`{"metadata": {"annotations": {"admission.ostiary.dev/rotate": "now"}}}`)
		must(t, c.Patch(ctx, ca.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
		c.change(t, "issued", within(7))
		c.awaitLeaf(t, namespace, leaf)
		next := string(c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca").Data[corev1.TLSCertKey])
		c.awaitBundle(t, "issued", string(first.Data["ca.crt"]), next)
		c.awaitReady(t, "issued")
		c.awaitForeign(t, namespace)
	})
	t.Run("the CA is lost, and the manager that remembers it is killed", func(t *testing.T) {
		before := c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca")
		leaf := c.issuedSecret(ctx, namespace, "checks-tls").Data[corev1.TLSCertKey]
		m.kill()
		must(t, c.Delete(ctx, before.DeepCopy()))
		m = c.manager(t)
		lost := string(before.Data[corev1.TLSCertKey])
		await(t).Eventually(func() error { // nothing certifies the next one, so both have to be trusted first
			next := string(c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca").Data[corev1.TLSCertKey])
			bundle, err := c.bundleOf(ctx, "issued")
			if err == nil && (next == "" || next == lost || !strings.Contains(bundle, next) || !strings.Contains(bundle, lost)) {
				err = fmt.Errorf("the CA is\n%sthe bundle\n%swant another CA than the one that was lost, and both in the bundle", next, bundle)
			}
			return err
		}).Should(Succeed())
		if got := c.issuedSecret(ctx, namespace, "checks-tls").Data[corev1.TLSCertKey]; !bytes.Equal(got, leaf) {
			t.Error("the leaf is of a CA that API servers may not trust yet")
		}
		c.awaitReady(t, "issued")
	})
	n, failures := stop()
	t.Logf("%d requests", n)
	if n < 20 || len(failures) > 0 {
		t.Errorf("%d of %d requests failed: %.2000s", len(failures), n, strings.Join(failures, "\n"))
	}
	for _, s := range []*corev1.Secret{
		c.issuedSecret(ctx, namespace, "checks-tls"), c.issuedSecret(ctx, systemNamespace, "ostiary-backend-ca"), first,
	} {
		c.wantNowhere(t, m, strings.Split(string(s.Data[corev1.TLSPrivateKeyKey]), "\n")[1])
	}
}

// restingBackends are one that is reachable, one that is not, and one with a
// certificate of Ostiary's.
func (c *cluster) restingBackends(t *testing.T) {
	t.Helper()
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	service, address := c.service(t, namespace, "checks")
	served := startForeign(t, address, ca.leaf(t))
	c.grant(t, namespace, "keep-certificate")
	c.mount(t.Context(), served, namespace)
	closed := &foreign{address: cptest.FreeAddress(), version: "v1"}
	c.apply(t, newPolicy("rest-unreachable", namespace, hostedBy(closed, ca.pem), failing("Ignore")))
	c.enforce(t, newPolicy("rest-foreign", namespace, hostedBy(f, ca.pem)),
		newPolicy("rest-issued", namespace, hostedBy(served, "", issued(service))))
	c.awaitReachable(t, "rest-unreachable", metav1.ConditionFalse, "")
}

// awaitLeaf waits for another certificate than before.
func (c *cluster) awaitLeaf(t *testing.T, namespace, before string) {
	t.Helper()
	await(t).Eventually(func() string {
		return string(c.issuedSecret(t.Context(), namespace, "checks-tls").Data[corev1.TLSCertKey])
	}).
		Should(And(Not(Equal(before)), HavePrefix("-----BEGIN CERTIFICATE-----")))
}

// load asks for what the foreign webhook refuses, until stop is called. Any
// other answer than its refusal is a failure.
func (c *cluster) load(ctx context.Context, namespace string) (stop func() (requests int64, failures []string)) {
	ctx, cancel := context.WithCancel(ctx)
	var n atomic.Int64
	failed := make(chan []string)
	go func() {
		var failures []string
		for ctx.Err() == nil {
			err := c.probe(ctx, namespace, bad)
			if ctx.Err() == nil {
				n.Add(1)
				if !deniedByForeign(err) {
					failures = append(failures, fmt.Sprint(time.Now().Format(time.TimeOnly), " ", err))
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		failed <- failures
	}()
	return func() (int64, []string) {
		cancel()
		return n.Load(), <-failed
	}
}

// A Secret that holds something else is left alone.
func TestExternalWebhookDoesNotOverwriteASecret(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	service, _ := c.service(t, namespace, "checks")
	at := v1alpha1.ObjectKey{Namespace: namespace, Name: "checks-tls"}
	c.store(t, "Secret", at, map[string]string{"password": "hunter2"})
	c.grant(t, namespace, "keep-certificate")
	c.apply(t, newPolicy("overwrites", namespace, hostedBy(&foreign{version: "v1"}, "", issued(service))))
	c.awaitCA(t, "overwrites", metav1.ConditionFalse, "Refused",
		"Secret "+namespace+"/checks-tls: it contains data that Ostiary did not write: specify another Secret or empty this one")
	if got := c.issuedSecret(t.Context(), namespace, "checks-tls"); string(got.Data["password"]) != "hunter2" || len(got.Data) != 1 {
		t.Errorf("the Secret has changed: %d keys", len(got.Data))
	}
}
