package policy

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// storedParam is a param as an API server sends it.
const storedParam = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"p","namespace":"shop","uid":"u","resourceVersion":"7","labels":{"team":"a"},
"annotations":{"note":"n"},"managedFields":[{"manager":"m"}]},"data":{"max":"3","other":"x","empty":""},"binaryData":{"b":"AAAA"},"list":[{"name":"a","size":1},{"name":"b","size":2}]}`

// partialParams has the parts of storedParam that a policy reads.
type partialParams struct{ t *testing.T }

func (p partialParams) Params(context.Context, *admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef, string) ([]runtime.Object, error) {
	p.t.Error("the policy does not say what it reads")
	return nil, nil
}

// ReadParams implements ParamReader.
func (p partialParams) ReadParams(_ context.Context, need ParamNeed, _ string) ([]runtime.Object, error) {
	return []runtime.Object{decodeParam(p.t, need.Reads)}, nil
}

func decodeParam(t *testing.T, parts unstructuredjson.Selection) *unstructured.Unstructured {
	t.Helper()
	tree, err := unstructuredjson.DecodeParts([]byte(storedParam), parts)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: tree}
}

// TestPartsOfParamsSuffice evaluates expressions with whole params and with the parts that the
// policy reads, and compares the answers.
func TestPartsOfParamsSuffice(t *testing.T) {
	const open = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"p","namespace":"shop","uid":"u","resourceVersion":"7","labels":{"team":"a"}`
	const identity = open + `}`
	const everything = open + `,"annotations":{"note":"n"}},"data":{"max":"3","other":"x","empty":""},"binaryData":{"b":"AAAA"},"list":[{"name":"a","size":1},{"name":"b","size":2}]}`
	data := func(text string) string { return identity + `,` + text + `}` }
	tests := map[string]struct{ spec, want string }{
		"one field":           {`validations: [{expression: 'params.data.max == "4"', message: m}]`, data(`"data":{"max":"3"}`)},
		"a field in a list":   {`validations: [{expression: 'params.list.all(e, e.size > 5)', message: m}]`, data(`"list":[{"size":1},{"size":2}]`)},
		"presence":            {`validations: [{expression: 'has(params.binaryData) && !has(params.data)', message: m}]`, data(`"data":{"max":"3","other":"x","empty":""},"binaryData":{"b":"AAAA"}`)},
		"a missing field":     {`validations: [{expression: 'params.data.none == "x"', message: m}]`, data(`"data":{}`)},
		"optional":            {`validations: [{expression: 'params.?data.?max.orValue("") == ""', message: m}]`, data(`"data":{"max":"3"}`)},
		"a computed name":     {`validations: [{expression: 'params.data["m" + "ax"] == ""', message: m}]`, data(`"data":{"max":"3","other":"x","empty":""}`)},
		"the whole object":    {`validations: [{expression: 'string(size(params)) == ""', message: m}]`, everything},
		"as a value":          {`validations: [{expression: 'params == object', message: m}]`, everything},
		"metadata":            {`validations: [{expression: 'size(params.metadata) == 0', message: m}]`, everything},
		"annotations":         {`validations: [{expression: 'params.metadata.annotations.note == ""', message: m}]`, open + `,"annotations":{"note":"n"}}}`},
		"managed fields":      {`validations: [{expression: 'has(params.metadata.managedFields)', message: m}]`, everything},
		"null":                {`validations: [{expression: 'params == null', message: m}]`, identity + `}`},
		"a variable":          {"variables: [{name: d, expression: params.data}]\nvalidations: [{expression: 'variables.d.max == \"\"', message: m}]", data(`"data":{"max":"3"}`)},
		"a message":           {`validations: [{expression: 'false', messageExpression: 'string(params.data.other)'}]`, data(`"data":{"other":"x"}`)},
		"a match condition":   {"matchConditions: [{name: c, expression: 'params.data.max == \"3\"'}]\nvalidations: [{expression: 'false', message: m}]", data(`"data":{"max":"3"}`)},
		"an audit expression": {"auditAnnotations: [{key: k, valueExpression: 'string(params.data.other)'}]\nvalidations: [{expression: 'false', message: m}]", data(`"data":{"other":"x"}`)},
		"nothing":             {`validations: [{expression: 'false', message: m}]`, identity + `}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, map[string]string{"p": ofConfigMaps + tc.spec + "\n" + bound("{name: b, paramRef: {name: p, parameterNotFoundAction: Deny}}")})
			needs := group.policies[0].ParamNeeds()
			if len(needs) != 1 || needs[0].Ref.Name != "p" || needs[0].Kind.Kind != "ConfigMap" {
				t.Fatalf("needs %+v", needs)
			}
			want, err := unstructuredjson.Decode([]byte(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, decodeParam(t, needs[0].Reads).Object); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			host := testWorld.host()
			host.Params = partialParams{t}
			partial, err := group.Validate(t.Context(), podInput(t, admission.Create).review(t), host)
			if err != nil {
				t.Fatal(err)
			}
			host.Params = paramsFunc(func(*admissionregistrationv1.ParamRef) []runtime.Object {
				return []runtime.Object{decodeParam(t, WholeParams())}
			})
			whole, err := group.Validate(t.Context(), podInput(t, admission.Create).review(t), host)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole, partial); diff != "" {
				t.Errorf("answers (-whole +partial):\n%s", diff)
			}
		})
	}
}
