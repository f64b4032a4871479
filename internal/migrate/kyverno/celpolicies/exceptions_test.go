package celpolicies

import (
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// An exception that reads the object is left out if the policy is extended to pod templates.
func TestExceptionsOfPodTemplates(t *testing.T) {
	const source = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: network}
spec:
  autogen: {podControllers: {controllers: [CONTROLLERS]}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  validations: [{expression: "!object.spec.?hostNetwork.orValue(false)"}]
---
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {name: legacy, namespace: default}
spec:
  policyRefs: [{name: network, kind: ValidatingPolicy}]
  matchConditions: [{name: by, expression: "CONDITION"}]
`
	const objects = `apiVersion: apps/v1
kind: Deployment
metadata: {name: legacy, namespace: shop}
spec: {selector: {}, template: {metadata: {}, spec: {HOST containers: []}}}
---
apiVersion: v1
kind: Pod
metadata: {name: legacy, namespace: shop}
spec: {HOST containers: []}
`
	tests := map[string]struct {
		controllers, condition string
		wantLeftOut            bool
		wantPod, wantWorkload  bool // allowed with hostNetwork
	}{
		"by a name": {
			controllers: "deployments", condition: "object.metadata.name == 'legacy'",
			wantLeftOut: true,
		},
		"by a name, no template": {condition: "object.metadata.name == 'legacy'", wantPod: true, wantWorkload: true},
		"by a namespace": {
			controllers: "deployments", condition: "request.namespace == 'shop'",
			wantPod: true, wantWorkload: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := read(t, strings.NewReplacer("CONTROLLERS", tt.controllers, "CONDITION", tt.condition).Replace(source))
			converted, err := Source().Convert(&conversion.Input{Objects: in, All: in})
			if err != nil || len(converted) != 2 {
				t.Fatalf("got %v %v, want two conversions", converted, err)
			}
			exception := converted[1]
			if got := exception.Rows[0].Outcome == conversion.LeftOut; got != tt.wantLeftOut {
				t.Errorf("got %+v, want it left out: %v", exception.Rows, tt.wantLeftOut)
			}
			reported := false
			for _, row := range converted[0].Rows {
				reported = reported || strings.Contains(row.Detail, "the PolicyException legacy is left out")
			}
			if reported != tt.wantLeftOut {
				t.Errorf("got %+v, want the exception in it: %v", converted[0].Rows, tt.wantLeftOut)
			}
			e := engineOf(t, converted[0].Outputs[0])
			for _, host := range []string{"", "hostNetwork: true,"} {
				for _, o := range read(t, strings.ReplaceAll(objects, "HOST", host)) {
					request, err := e.APIs.NewRequest(&o, nil, offline.RequestOptions{})
					if err != nil {
						t.Fatal(err)
					}
					world := offline.NewWorld(e.APIs, nil, nil, nil)
					result, err := e.Evaluate(t.Context(), request, world, offline.Options{})
					if err != nil {
						t.Fatal(err)
					}
					want := host == "" || o.Kind == "Pod" && tt.wantPod || o.Kind == "Deployment" && tt.wantWorkload
					if result.Allowed != want {
						t.Errorf("%s with %q: got allowed %v, want %v", o.Kind, host, result.Allowed, want)
					}
				}
			}
		})
	}
}

func engineOf(t *testing.T, o *conversion.Output) *offline.Engine {
	t.Helper()
	text, err := o.YAML()
	if err != nil {
		t.Fatal(err)
	}
	in, err := offline.Sort(read(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := policy.NewCompiler()
	apis, err := offline.NewAPIs(compiler.Engine(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := offline.NewEngine(in.Policies, compiler, apis)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
