package policy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const notRead = "unreadable object at request."

// TestUnreadable: bindings that deny reject unreadable objects, with any failurePolicy. Deletions pass.
func TestUnreadable(t *testing.T) {
	const validation = "validations: [{expression: 'object != oldObject'}]\n"
	const mutation = "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/x\"}]'}}]\n"
	tests := map[string]struct {
		spec                     string
		operation                admission.Operation
		mutating                 bool
		want                     bool
		wantWarning, wantFailure bool
	}{
		"Deny":                {spec: validation + "bindings: [{name: b, validationActions: [Deny]}]", operation: admission.Create},
		"Deny, update":        {spec: validation + "bindings: [{name: b, validationActions: [Deny]}]", operation: admission.Update},
		"Deny, delete":        {spec: validation + "bindings: [{name: b, validationActions: [Deny]}]", operation: admission.Delete, want: true, wantWarning: true},
		"Warn":                {spec: validation + "bindings: [{name: b, validationActions: [Warn]}]", operation: admission.Create, want: true, wantWarning: true},
		"Audit":               {spec: validation + "bindings: [{name: b, validationActions: [Audit]}]", operation: admission.Create, want: true, wantFailure: true},
		"of some labels":      {spec: validation + "bindings: [{name: b, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {a: b}}}}]", operation: admission.Create},
		"of other namespaces": {spec: validation + "bindings: [{name: b, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {a: b}}}}]", operation: admission.Create, want: true},
		"with conditions":     {spec: validation + "matchConditions: [{name: c, expression: 'object.a == 1'}]\nbindings: [{name: b, validationActions: [Deny]}]", operation: admission.Create},
		"mutation":            {spec: mutation, operation: admission.Create, mutating: true},
		"mutation, delete":    {spec: mutation, operation: admission.Delete, mutating: true, want: true},
	}
	for name, tc := range tests {
		for _, failurePolicy := range []string{"Fail", "Ignore"} {
			t.Run(name+"/"+failurePolicy, func(t *testing.T) {
				group := groupFrom(t, map[string]string{"p": tc.spec + "\nfailurePolicy: " + failurePolicy})
				raw := podInput(t, tc.operation).review(t)
				raw.Object.Raw = nil
				if tc.operation == admission.Delete {
					raw.OldObject.Raw = []byte(`{"a":1e400}`)
				} else {
					raw.Object.Raw = []byte(`{"a":1e400}`)
				}
				evaluate := group.Validate
				if tc.mutating {
					evaluate = group.Mutate
				}
				got, err := evaluate(t.Context(), raw, testWorld.host())
				if err != nil {
					t.Fatal(err)
				}
				if got.Allowed != tc.want || (!tc.want && !strings.Contains(got.Result.Message, "denied request: "+notRead)) {
					t.Errorf("answer %+v, want allowed: %t", got, tc.want)
				}
				if warned := strings.Contains(strings.Join(got.Warnings, ""), notRead); warned != tc.wantWarning {
					t.Errorf("warnings %q, want one: %t", got.Warnings, tc.wantWarning)
				}
				if failed := strings.Contains(got.AuditAnnotations[response.FailureKey], notRead); failed != tc.wantFailure {
					t.Errorf("annotations %q, want a failure: %t", got.AuditAnnotations, tc.wantFailure)
				}
			})
		}
	}
}

// Where all requests together take too much, another try may succeed: that is no decision.
func TestMemoryOfAllRequestsIsNoDecision(t *testing.T) {
	group := groupFrom(t, map[string]string{"p": "validations: [{expression: 'true'}]\nfailurePolicy: Ignore"})
	raw := podInput(t, admission.Create).review(t)
	raw.Object.Raw = []byte(`{"a":[` + strings.Repeat("{},", 1<<20) + `{}]}`)
	account := unstructuredjson.NewMemory(1 << 20).Open()
	defer account.Close()
	_, err := group.Validate(unstructuredjson.WithAccount(t.Context(), account), raw, hostOf())
	var busy *unstructuredjson.BusyError
	if !errors.As(err, &busy) {
		t.Errorf("error %v, want a *unstructuredjson.BusyError", err)
	}
}

// No policy sees a request that no API server sends.
func TestContradictions(t *testing.T) {
	tests := map[string]struct {
		operation admission.Operation
		change    func(*admissionv1.AdmissionRequest)
		want      string // the error; empty if there is none
	}{
		"as sent":                     {operation: admission.Update},
		"another version":             {operation: admission.Create, change: sending(`{"apiVersion":"v2"}`), want: "decoding request.object: apiVersion contradicts request.kind"},
		"another kind":                {operation: admission.Create, change: sending(`{"apiVersion":"v1","kind":"Secret"}`), want: "decoding request.object: kind contradicts request.kind"},
		"a kind that is a number":     {operation: admission.Create, change: sending(`{"kind":1}`), want: "decoding request.object: kind contradicts request.kind"},
		"no kind":                     {operation: admission.Create, change: sending(`{"kind":"","metadata":null}`)},
		"another namespace":           {operation: admission.Create, change: sending(`{"metadata":{"namespace":"other"}}`), want: "decoding request.object: metadata.namespace contradicts request.namespace"},
		"no namespace":                {operation: admission.Create, change: sending(`{"metadata":{"name":"a"}}`)},
		"created by another name":     {operation: admission.Create, change: sending(`{"metadata":{"name":"renamed"}}`)},
		"generateName":                {operation: admission.Create, change: func(r *admissionv1.AdmissionRequest) { r.Name = "" }},
		"updated by another name":     {operation: admission.Update, change: sending(`{"metadata":{"name":"renamed"}}`), want: "decoding request.object: metadata.name contradicts request.name"},
		"stored by another name":      {operation: admission.Delete, change: func(r *admissionv1.AdmissionRequest) { r.Name = "other" }, want: "decoding request.oldObject: metadata.name contradicts request.name"},
		"of a collection":             {operation: admission.Delete, change: func(r *admissionv1.AdmissionRequest) { r.Name = "" }},
		"in a cluster-scoped request": {operation: admission.Update, change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "" }, want: "decoding request.object: metadata.namespace contradicts request.namespace"},
		"options of CONNECT": {operation: admission.Connect, change: func(r *admissionv1.AdmissionRequest) {
			r.Kind, r.SubResource = metav1.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, "exec"
			r.Object.Raw = []byte(`{"kind":"PodExecOptions","apiVersion":"v1","stdin":true}`)
		}},
		"a Namespace": {operation: admission.Update, change: func(r *admissionv1.AdmissionRequest) {
			r.Kind.Kind, r.Resource.Resource, r.Name, r.Namespace = "Namespace", "namespaces", "a", "a"
			r.Object.Raw = []byte(`{"kind":"Namespace","metadata":{"name":"a"}}`)
			r.OldObject = r.Object
		}},
		"a Scale": {operation: admission.Update, change: func(r *admissionv1.AdmissionRequest) {
			r.Kind, r.SubResource = metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, "scale"
			r.Object.Raw = []byte(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"shop"}}`)
			r.OldObject = r.Object
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			raw := podInput(t, tc.operation).review(t)
			if tc.change != nil {
				tc.change(raw)
			}
			err := newRequest(raw).prepare(t.Context(), inputs{object: identity(), oldObject: identity()}, Environment{})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			var malformed *MalformedError
			if err != nil && (!errors.As(err, &malformed) || !malformed.BadRequest()) {
				t.Errorf("error %T, want a bad request", err)
			}
		})
	}
}

func sending(object string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(object) }
}

// TestPatchOfLenientlyDecodedObjects applies patches to what the API server has: duplicates and broken text included.
func TestPatchOfLenientlyDecodedObjects(t *testing.T) {
	group := groupFrom(t, map[string]string{"p": `mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels/added", value: "yes"}]'}}]`})
	raw := podInput(t, admission.Create).review(t)
	raw.Object.Raw = []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"a":"\ud800","a":"last"},"annotations":{"b":"` + "\xff" + `"}},"spec":{"containers":[]}}`)
	got := mutate(t, group, raw, testWorld.host())
	var operations []map[string]any
	if err := json.Unmarshal(got.Patch, &operations); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{"op": "add", "path": "/metadata/labels/added", "value": "yes"}}
	if diff := cmp.Diff(want, operations); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
