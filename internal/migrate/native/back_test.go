package native

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// What native policies do not have is reported by its field.
func TestBackReports(t *testing.T) {
	const text = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  ratchet: true
  podTemplates: {}
  audit: {enabled: false}
  validations:
  - {name: first, expression: "true"}
  - {expression: "true", ratchet: true}
  - {expression: "true", ratchet: false}
`
	objects, err := load.Text(t.Context(), "policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	converted, err := Back().Convert(&conversion.Input{Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range converted[0].Rows {
		got = append(got, string(r.Outcome)+" "+r.Rule)
	}
	want := []string{
		"changed spec.podTemplates", "changed spec.ratchet", "changed spec.validations[0].name",
		"changed spec.validations[1].ratchet", "changed spec.audit",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// A policy that reads other objects has no native counterpart.
func TestBackLeavesOutLookups(t *testing.T) {
	const text = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  lookups: [{name: l, resource: {version: v1, resource: pods}, storedKeys: "[]", requestKeys: "[]"}]
  validations: [{expression: "lookups.l == []"}]
`
	objects, err := load.Text(t.Context(), "policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	converted, err := Back().Convert(&conversion.Input{Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	c := converted[0]
	if len(c.Outputs) != 0 || len(c.Rows) != 1 || c.Rows[0].Outcome != conversion.LeftOut || c.Rows[0].Rule != "spec.lookups" {
		t.Errorf("got %d outputs and %+v", len(c.Outputs), c.Rows)
	}
}
