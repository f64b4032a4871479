package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/status"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const installed = `
apiVersion: v1
kind: Namespace
metadata: {name: ostiary-system}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: ostiary-system, name: ostiary-leader}
spec: {holderIdentity: ostiary-a_0b1f6a52-7c1e-4e0a-9d0f-3c2f5a9e8b71, leaseDurationSeconds: 3600, renewTime: "NOW"}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: ostiary-system, name: ostiary-replica-ostiary-a}
spec: {holderIdentity: ostiary-a, leaseDurationSeconds: 3600, renewTime: "NOW"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ostiary-canary-validate}
webhooks:
- name: canary-validate.ostiary.dev
  clientConfig: {caBundle: BUNDLE, service: {namespace: ostiary-system, name: ostiary-webhook}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [persistentvolumes]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

const shown = `
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: require-team}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations: [{expression: "true"}]
`

// The status reads policies from the API server, and denials from the metrics of a replica.
func TestStatusShowsDenials(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	client := kubernetes.NewForConfigOrDie(cp.Config())
	certificate, bundle := selfSigned(t, "ostiary-webhook.ostiary-system.svc", 48*time.Hour)
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: strings.NewReplacer("NOW", time.Now().Format(metav1.RFC3339Micro), "BUNDLE", bundle)}
	p.plant(t, p.read(t, "../../config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml"))
	p.plant(t, p.parse(t, installed))
	policy := p.parse(t, shown)[0]
	NewWithT(t).Eventually(func() error { // until the API server serves the kind
		created, err := p.resource(policy).Create(t.Context(), policy, metav1.CreateOptions{})
		if err == nil {
			policy = created
		}
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
	must(t, unstructured.SetNestedMap(policy.Object, map[string]any{"observedGeneration": int64(1), "actions": "Deny", "failurePolicy": "Fail", "conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "observedGeneration": int64(1), "reason": "Enforced", "message": "enforced", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}, "status"))
	_, err := p.resource(policy).UpdateStatus(t.Context(), policy, metav1.UpdateOptions{})
	must(t, err)
	startNode(t, client, "node")
	startPod(t, client, "ostiary-system", "ostiary-a", "node")
	_, err = client.CoreV1().ServiceAccounts("ostiary-system").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}}, metav1.CreateOptions{})
	must(t, err)
	port := serveTLS(t, certificate, exposed(func(token string) bool {
		review, err := client.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		return token == "secret" || err == nil && review.Status.User.Username == "system:serviceaccount:ostiary-system:scraper"
	}))

	run := func(args ...string) (int, string, string) {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		code := cli.Run(t.Context(), "test", append([]string{"status", "--kubeconfig", cp.Kubeconfig(), "--metrics-port", port, "-o", "json"}, args...), streams)
		return code, out.String(), errOut.String()
	}
	for name, tc := range map[string]struct {
		args        []string
		wantDenied  *int
		wantUnknown string
	}{
		"with a token": {args: []string{"--token", "secret"}, wantDenied: new(7)},
		"with a refused token": {
			args: []string{"--token", "other"},
			wantUnknown: "reading the metrics of Pod ostiary-a: 401 Unauthorized: use the token of a user who may get the URL /metrics, " +
				"or --metrics-service-account",
		},
		"with a client certificate": {
			wantUnknown: "the context has no token, which the replicas ask for: name a ServiceAccount that may get the URL /metrics " +
				"with --metrics-service-account, or pass a token with --token",
		},
		"with the token of a ServiceAccount": {args: []string{"--metrics-service-account", "ostiary-system/scraper"}, wantDenied: new(7)},
		"with a ServiceAccount that does not exist": {
			args:        []string{"--metrics-service-account", "ostiary-system/nobody"},
			wantUnknown: `requesting a token of ServiceAccount ostiary-system/nobody: serviceaccounts "nobody" not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(tc.args...)
			var got status.Status
			must(t, json.Unmarshal([]byte(out), &got))
			if code != output.StatusOK || errOut != "" || got.DenialsUnknown != tc.wantUnknown {
				t.Errorf("status %d, stderr %q, unknown %q; want 0, none, %q", code, errOut, got.DenialsUnknown, tc.wantUnknown)
			}
			if len(got.Policies) != 1 || got.Policies[0].Ready != "True" || got.Leader != "ostiary-a" || got.Live != 1 || got.CAExpires == nil {
				t.Fatalf("got %+v", got)
			}
			if denied := got.Policies[0].Denied; (denied == nil) != (tc.wantDenied == nil) || denied != nil && *denied != *tc.wantDenied {
				t.Errorf("denied: got %v, want %v", denied, tc.wantDenied)
			}
		})
	}
	t.Run("without leader election", func(t *testing.T) {
		must(t, client.CoordinationV1().Leases("ostiary-system").Delete(t.Context(), "ostiary-leader", metav1.DeleteOptions{}))
		p.plant(t, p.parse(t, single))
		code, out, errOut := run("-o", "wide")
		const want = "Ostiary in ostiary-system: 1 of 1 replicas, without leader election, CA expires in "
		if code != output.StatusOK || errOut != "" || !strings.HasPrefix(out, want) || strings.Contains(out, "No replica") {
			t.Errorf("status %d\n%s%s, want %q", code, out, errOut, want)
		}
	})
}

const single = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: ostiary-system, name: ostiary, labels: {app.kubernetes.io/name: ostiary}}
spec:
  replicas: 1
  selector: {matchLabels: {app: ostiary}}
  template:
    metadata: {labels: {app: ostiary}}
    spec: {containers: [{name: manager, image: "example.com/ostiary:v1", args: [--leader-elect=false]}]}
`

// exposed serves the metrics of a replica to clients with a token that is accepted.
func exposed(accepts func(token string) bool) http.Handler {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ostiary_policy_requests_total"}, []string{"policy", "operation", "decision"})
	requests.WithLabelValues("require-team", "CREATE", "deny").Add(7)
	requests.WithLabelValues("require-team", "CREATE", "allow").Add(70)
	registry := prometheus.NewRegistry()
	registry.MustRegister(requests)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !accepts(token) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		metrics.ServeHTTP(w, r)
	})
}
