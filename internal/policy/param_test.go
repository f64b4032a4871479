package policy

import (
	"context"
	"math"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

type evaluateFunc func(context.Context, *admissionv1.AdmissionRequest, Environment) (*admissionv1.AdmissionResponse, error)

// JSON has no infinity: an evaluation that converts the param to JSON fails.
func TestParamsAreNotWrittenAsJSON(t *testing.T) {
	tests := map[string]struct {
		spec string
		call func(*Group) evaluateFunc
	}{
		"validations": {"matchConditions: [{name: c, expression: 'params.spec.most > 1.0'}]\nvalidations: [{expression: 'params.metadata.name == \"p\" && params.spec.most > 2.0'}]\n", func(g *Group) evaluateFunc { return g.Validate }},
		"mutations":   {mutations(label("a", "params.metadata.name + string(params.spec.most > 2.0)")), func(g *Group) evaluateFunc { return g.Mutate }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			host.Params = paramsFunc(func(*admissionregistrationv1.ParamRef) []runtime.Object {
				return []runtime.Object{&unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"most": math.Inf(1)},
				}}}
			})
			group := groupFrom(t, map[string]string{"p": ofConfigMaps + tc.spec + bound("{name: b, paramRef: {name: p, parameterNotFoundAction: Deny}}")})
			response, err := tc.call(group)(t.Context(), podInput(t, admission.Create).review(t), host)
			if err != nil || !response.Allowed {
				t.Errorf("answer = %+v, %v", response, err)
			}
		})
	}
}

// Bindings to one param have one evaluation between them, and each its own answer.
func TestBindingsToOneParam(t *testing.T) {
	const spec = "validations: [{expression: 'params.spec.max == 0', message: m}]\n"
	group := groupFrom(t, map[string]string{"p": ofConfigMaps + spec + bound(
		"{name: a, paramRef: {name: first, parameterNotFoundAction: Deny}}", "{name: b, validationActions: [Warn], paramRef: {name: first, parameterNotFoundAction: Deny}}")})
	host := testWorld.host()
	first := []runtime.Object{paramLimit("first", 9)}
	host.Params = paramsFunc(func(*admissionregistrationv1.ParamRef) []runtime.Object { return first })
	response, err := group.Validate(t.Context(), podInput(t, admission.Create).review(t), host)
	if err != nil || response.Allowed || len(response.Warnings) != 1 {
		t.Errorf("answer = %+v, %v, want a denial and a warning", response, err)
	}
}
