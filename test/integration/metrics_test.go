package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metrics name policies and who fights over what: they are for those whom RBAC
// allows to read them, over a connection that can be verified.
func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	c := install(t)
	c.manager(t)
	m := c.another(t, "--metrics-auth=true")
	client, reader := c.scraper(t)
	other := c.tokenOf(t, c.namespace(t, nil), "other")
	tests := map[string]struct {
		token string
		want  int
	}{
		"without a token":               {want: http.StatusUnauthorized},
		"with a token that is none":     {token: "nonsense", want: http.StatusUnauthorized},
		"with the token of who may not": {token: other, want: http.StatusForbidden},
		"with the token of who may":     {token: reader, want: http.StatusOK},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The binding counts a moment after it has been stored.
			await(t).Eventually(func() error {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+m.metrics+"/metrics", nil)
				if err != nil {
					return err
				}
				if test.token != "" {
					request.Header.Set("Authorization", "Bearer "+test.token)
				}
				response, err := client.Do(request)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil {
					return err
				}
				if got := strings.Contains(string(body), "ostiary_policies"); response.StatusCode != test.want || got != (test.want == http.StatusOK) {
					return fmt.Errorf("got %d, with metrics: %v, want %d", response.StatusCode, got, test.want)
				}
				return nil
			}).Should(Succeed())
		})
	}
	if _, text, err := m.get(t.Context(), m.metrics, "/metrics"); err == nil && strings.Contains(text, "ostiary_") {
		t.Error("metrics are served without TLS")
	}
}

// scraper returns a client that trusts the serving certificate, and a token that may read metrics.
func (c *cluster) scraper(t *testing.T) (client *http.Client, token string) {
	t.Helper()
	serving, err := c.secret(t, servingSecret)
	must(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(serving.Data["ca.crt"]) {
		t.Fatal("the Secret holds no bundle")
	}
	client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	t.Cleanup(client.CloseIdleConnections)
	namespace := c.namespace(t, nil)
	token = c.tokenOf(t, namespace, "reader")
	c.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ostiary-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "reader"}},
	})
	return client, token
}

// tokenOf makes a ServiceAccount and gives a token of it.
func (c *cluster) tokenOf(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.create(t, account)
	request := &authenticationv1.TokenRequest{}
	must(t, c.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}
