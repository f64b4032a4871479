//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shop is the namespace of an external webhook, as in the document about them.
const (
	shop        = "shop"
	foreignPage = "docs/policies/external-webhooks.md"
)

// hostChecks runs that webhook, with a certificate that Ostiary issues, for as
// long as the test, and hands its CA to the sample that reads it.
func (w *world) hostChecks(t *testing.T) {
	if w.checks == "" {
		t.Log("E2E_CHECKS is not set: external webhooks are not tested")
		return
	}
	w.makeNamespace(t, shop, nil)
	w.do(t, `apiVersion: v1
kind: Service
metadata: {name: checks, namespace: shop}
spec: {ports: [{port: 443, targetPort: 8443}], selector: {app: checks}}
`, "apply", "-f", "-")
	t.Run("an external webhook", func(t *testing.T) {
		w.do(t, marked(t, foreignPage, "keep-certificate"), "apply", "-f", "-")
		policy := w.issuedPolicy(t)
		w.do(t, policy.text, "apply", "-f", "-")
		ca := w.awaitIssued(t, policy.Spec.Backend.Certificate.SecretName)
		w.wantUnreachable(t, policy.Name)
		w.do(t, `apiVersion: v1
kind: Pod
metadata: {name: checks, namespace: shop, labels: {app: checks}}
spec:
  containers: [{name: checks, image: "`+w.checks+`", volumeMounts: [{name: tls, mountPath: /tls}]}]
  volumes: [{name: tls, secret: {secretName: `+policy.Spec.Backend.Certificate.SecretName+`}}]
`, "apply", "-f", "-")
		w.do(t, "", "wait", "--for=condition=Ready", "--timeout=180s", "whp/"+policy.Name)
		w.wantChecked(t)
		w.do(t, "", "delete", "whp", policy.Name)
		w.do(t, marked(t, foreignPage, "read-secret"), "apply", "-f", "-")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "checks-ca"}, Data: map[string][]byte{"ca.crt": ca}}
		if _, err := w.client.CoreV1().Secrets(shop).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

// issuedPolicy is the one of the document that has its certificate issued.
func (w *world) issuedPolicy(t *testing.T) example {
	t.Helper()
	for _, e := range examples(t, foreignPage) {
		if e.Spec.Backend != nil && e.Spec.Backend.Certificate != nil {
			return e
		}
	}
	t.Fatalf("%s shows no policy with a certificate", foreignPage)
	return example{}
}

func (w *world) awaitIssued(t *testing.T, name string) (ca []byte) {
	t.Helper()
	eventually(t, func() error {
		secret, err := w.client.CoreV1().Secrets(shop).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ca = secret.Data["ca.crt"]
		if len(ca) == 0 || len(secret.Data["tls.crt"]) == 0 {
			return fmt.Errorf("the Secret has %d fields, and not the certificates", len(secret.Data))
		}
		return nil
	})
	return ca
}

// wantUnreachable waits until a condition tells of the Service that has no pods.
func (w *world) wantUnreachable(t *testing.T, policy string) {
	t.Helper()
	eventually(t, func() error {
		out := w.do(t, "", "get", "whp", policy, "-o", `jsonpath={.status.conditions[?(@.type=="Reachable")]}`)
		if !strings.Contains(out, `"status":"False"`) {
			return fmt.Errorf("the condition Reachable is %s: want it False, for a Service without pods", out)
		}
		return nil
	})
}

// wantChecked waits until the webhook decides.
func (w *world) wantChecked(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		r := w.try(t, "", "-n", plain, "create", "configmap", "asked", "--from-literal=refuse=this", "--dry-run=server")
		if r.err == nil || !strings.Contains(r.stderr, "checks refuse it") {
			return fmt.Errorf("%s: want it refused by the webhook", r)
		}
		r = w.try(t, "", "-n", plain, "create", "configmap", "asked", "--from-literal=take=this", "--dry-run=server")
		return errors.Join(r.err)
	})
}
