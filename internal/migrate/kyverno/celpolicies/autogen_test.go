package celpolicies

import (
	"testing"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
)

// A policy for Pods decides about a Deployment as about the Pod of its template.
func TestAutogenVerdicts(t *testing.T) {
	const source = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: team}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}
  validations: [{expression: "'team' in object.metadata.?labels.orValue({})"}]
`
	objects := read(t, source)
	converted, err := Source().Convert(&conversion.Input{Objects: objects, All: objects})
	if err != nil {
		t.Fatal(err)
	}
	e := engineOf(t, converted[0].Outputs[0])
	for labels, want := range map[string]bool{"{team: shop}": true, "{app: shop}": false} {
		for _, o := range read(t, `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, labels: `+labels+`}
spec: {containers: []}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: shop}
spec: {selector: {}, template: {metadata: {labels: `+labels+`}, spec: {containers: []}}}
`) {
			request, err := e.APIs.NewRequest(&o, nil, offline.RequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			result, err := e.Evaluate(t.Context(), request, offline.NewWorld(e.APIs, nil, nil, nil), offline.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if result.Allowed != want {
				t.Errorf("%s with the labels %s: got allowed %v, want %v", o.Kind, labels, result.Allowed, want)
			}
		}
	}
}

func read(t *testing.T, text string) []load.Object {
	t.Helper()
	objects, err := load.Text(t.Context(), "test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
