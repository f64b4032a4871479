package explain

import (
	"os"
	"strings"
	"testing"
)

// TestLookups: an explanation names the keys of a lookup and the objects that it finds, but no keys of Secrets.
func TestLookups(t *testing.T) {
	const policies = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: hosts}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [ingresses]}]
  lookups:
  - name: sameHost
    resource: {group: networking.k8s.io, version: v1, resource: ingresses}
    scope: Cluster
    keyErrors: Skip
    storedKeys: stored.spec.rules.map(r, r.host)
    requestKeys: object.spec.rules.map(r, r.host)
  validations: [{expression: lookups.sameHost.size() == 0, message: used}]
---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: secrets}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [ingresses]}]
  lookups:
  - name: owned
    resource: {version: v1, resource: secrets}
    storedKeys: stored.metadata.labels.map(k, stored.metadata.labels[k])
    requestKeys: '["topsecret"]'
  validations: [{expression: lookups.owned.size() == 0, message: found}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: old, namespace: shop}
spec: {rules: [{host: a.example.com}]}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: default, labels: {of: topsecret}}
data: {password: c2VjcmV0}
`
	const ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: default}, " +
		"spec: {rules: [{host: a.example.com}, {host: b.example.com}]}}"
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"policies.yaml": policies, "ingress.yaml": ingress} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		args          []string
		want, without string
	}{
		"a table": {
			want:    "  lookup sameHost: keys a.example.com, b.example.com, found in ingresses.networking.k8s.io: shop/old\n",
			without: "topsecret",
		},
		"a table of Secrets": {want: "  lookup owned: 1 keys, which are not shown, found in secrets: default/key\n", without: "topsecret"},
		"JSON": {
			args:    []string{"-o", "json"},
			want:    `"keys":["a.example.com","b.example.com"],"objects":["shop/old"],"count":1`,
			without: "topsecret",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, "", append([]string{"-f", "policies.yaml", "--object", "ingress.yaml"}, tt.args...)...)
			if err != nil {
				t.Fatal(err, errOut)
			}
			text := out
			if tt.args != nil {
				text = strings.Join(strings.Fields(out), "")
			}
			if !strings.Contains(text, tt.want) || strings.Contains(out, tt.without) {
				t.Errorf("got\n%s\nwant %s, without %s", out, tt.want, tt.without)
			}
		})
	}
}
