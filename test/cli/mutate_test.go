package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const mutatingPolicy = `
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: cost-center}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE, UPDATE]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |
        Object{
          metadata: Object.metadata{labels: {"cost-center": "none"}},
          spec: Object.spec{ports: object.spec.ports.filter(p, p.protocol == "UDP").map(p,
            Object.spec.ports{port: p.port, protocol: p.protocol, appProtocol: "example.com/dns"})}}
`

const mutatedServices = `
apiVersion: v1
kind: Service
metadata: {name: first, namespace: shop, labels: {team: web}}
spec: {ports: [{name: dns, port: 53, protocol: UDP}, {name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: second, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: third, namespace: other}
spec: {ports: [{port: 80}]}
`

// testMutate applies what mutate prints for the objects of a cluster. A second run then has nothing to change, and the
// manager of the fields owns only those that the mutation sets.
func testMutate(t *testing.T, p planter) {
	objects := p.parse(t, mutatedServices)
	p.plant(t, objects)
	t.Cleanup(func() { p.remove(t, objects) })
	mutate := func(args ...string) (out, errOut string) {
		t.Helper()
		status, out, errOut := ostiary(t, mutatingPolicy, append([]string{"mutate", "--from-cluster", "-f", "-"}, args...)...)
		if status != output.StatusOK {
			t.Fatalf("status %d\n%s%s", status, out, errOut)
		}
		return out, errOut
	}
	out, errOut := mutate("svc", "-n", "shop")
	if want := ": 2 objects changed, 0 errors"; !strings.Contains(errOut, want) {
		t.Errorf("stderr lacks %q:\n%s", want, errOut)
	}
	for _, u := range p.parse(t, out) {
		text, err := u.MarshalJSON()
		must(t, err)
		options := metav1.PatchOptions{FieldManager: "policies"}
		if _, err := p.resource(u).Patch(t.Context(), u.GetName(), types.ApplyPatchType, text, options); err != nil {
			t.Fatalf("applying the result: %v\n%s", err, text)
		}
	}
	if out, errOut := mutate("services", "-n", "shop"); out != "" {
		t.Errorf("a second run changes something again:\n%s%s", out, errOut)
	}
	if out, _ := mutate("services"); !strings.Contains(out, "name: third") {
		t.Errorf("without a namespace, a Service is missing:\n%s", out)
	}
	wantOwned := map[string]string{
		"first": `
f:metadata: {f:labels: {f:cost-center: {}}}
f:spec: {f:ports: {'k:{"port":53,"protocol":"UDP"}': {.: {}, f:appProtocol: {}, f:port: {}, f:protocol: {}}}}`,
		"second": `f:metadata: {f:labels: {f:cost-center: {}}}`,
	}
	for _, u := range objects[:2] {
		stored, err := p.resource(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		must(t, err)
		var want, got any
		must(t, yaml.Unmarshal([]byte(wantOwned[u.GetName()]), &want))
		for _, f := range stored.GetManagedFields() {
			if f.Manager == "policies" {
				must(t, json.Unmarshal(f.FieldsV1.GetRawBytes(), &got))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of %s that the manager owns (-want +got):\n%s", u.GetName(), diff)
		}
	}
}
