package gatekeeper

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Each policy that stands for a public template exists in the library.
func TestLibraryPolicies(t *testing.T) {
	for template, name := range libraryPolicies() {
		found, err := filepath.Glob("../../../library/*/" + name + "/policy.yaml")
		if err != nil || len(found) != 1 {
			t.Errorf("%s: got the policies %v and %v, want one named %s", template, found, err, name)
		}
	}
}

// A template of the public library in Rego is left out, and the report names the policy of
// Ostiary's library.
func TestRegoOfPublicLibrary(t *testing.T) {
	objects, err := load.Text(t.Context(), "template.yaml", []byte(`apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8sexternalips}
spec:
  crd: {spec: {names: {kind: K8sExternalIPs}}}
  targets: [{target: admission.k8s.gatekeeper.sh, rego: package x}]
`))
	if err != nil {
		t.Fatal(err)
	}
	converted, err := Source().Convert(&conversion.Input{Objects: objects, All: objects})
	if err != nil {
		t.Fatal(err)
	}
	if len(converted) != 1 || len(converted[0].Rows) != 1 {
		t.Fatalf("got %v, want one row", converted)
	}
	if row := converted[0].Rows[0]; row.Outcome != conversion.LeftOut ||
		!strings.HasPrefix(row.Alternative, "use the policy external-ips of Ostiary's library") {
		t.Errorf("got %s: %s, want it left out with the policy external-ips", row.Outcome, row.Alternative)
	}
}
