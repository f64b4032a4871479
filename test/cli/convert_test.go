package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// The policies of a cluster convert as those of files, and go back to it as native ones.
func TestConvertFromCluster(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: strings.NewReplacer()}
	const native = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas.example.com, labels: {team: shop}}
spec:
  failurePolicy: Ignore
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: object.spec.replicas <= 5, message: at most 5 replicas}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas.example.com.all}
spec: {policyName: replicas.example.com, validationActions: [Deny]}
`
	p.plant(t, p.parse(t, native))
	out, report := convert(t, cp, "--from-cluster", "--actions", "keep")
	if !strings.Contains(report, "1 converted, 0 changed, 0 left out") {
		t.Errorf("got the report %s", report)
	}
	for _, want := range []string{"name: replicas.example.com\n", "team: shop\n", "failurePolicy: Ignore\n", "expression: object.spec.replicas <= 5\n", "validationActions:\n    - Deny\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %q", out, want)
		}
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	must(t, os.WriteFile(file, []byte(out), 0o600))
	back, _ := convert(t, cp, "-f", file, "--to", "native")
	var got []string
	for _, u := range p.parse(t, back) {
		got = append(got, u.GetKind()+" "+u.GetName())
	}
	want := []string{"ValidatingAdmissionPolicy replicas.example.com", "ValidatingAdmissionPolicyBinding replicas.example.com.all"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the way back (-want +got):\n%s", diff)
	}
	p.plant(t, p.parse(t, back)) // the API server accepts them
}

// convert runs the command convert and returns the policies and the report.
func convert(t *testing.T, cp *controlplane.ControlPlane, args ...string) (out, report string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}
	if code := cli.Run(t.Context(), "test", append([]string{"convert", "--kubeconfig", cp.Kubeconfig()}, args...), streams); code != 0 {
		t.Fatalf("got the exit status %d\n%s", code, stderr.String())
	}
	return stdout.String(), stderr.String()
}
