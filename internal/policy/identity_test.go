package policy

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"
)

func TestMutationsKeepTheIdentity(t *testing.T) {
	name := mutations(patching(op("replace", "/metadata/name", `"other"`)))
	namespace := mutations(patching(op("replace", "/metadata/namespace", `"other"`)))
	for title, tt := range map[string]struct {
		spec      string
		operation admission.Operation
		want      string // part of the denial; "" allows
	}{
		"namespace on CREATE": {namespace, admission.Create, `WebhookPolicy 'p' denied request: spec.mutations[0]: metadata.namespace: the mutation changes it from "shop" to "other"; the namespace of an object is immutable`},
		"namespace on UPDATE": {namespace, admission.Update, `metadata.namespace: the mutation changes it from "shop" to "other"`},
		"name on UPDATE":      {name, admission.Update, `metadata.name: the mutation changes it from "web" to "other"; the name of an existing object is immutable`},
		"name on CREATE":      {name, admission.Create, ""},
		"Ignore":              {"failurePolicy: Ignore\n" + name, admission.Update, ""},
	} {
		t.Run(title, func(t *testing.T) {
			resp, err := groupFrom(t, map[string]string{"p": tt.spec}).Mutate(t.Context(), podInput(t, tt.operation).review(t), testWorld.host())
			if err != nil {
				t.Fatal(err)
			}
			if resp.Allowed != (tt.want == "") || tt.want != "" && !strings.Contains(resp.Result.Message, tt.want) {
				t.Errorf("allowed %t: %+v, want %q", resp.Allowed, resp.Result, tt.want)
			}
			if tt.operation == admission.Operation(admissionv1.Update) && resp.Patch != nil {
				t.Errorf("patch %s", resp.Patch)
			}
		})
	}
}
