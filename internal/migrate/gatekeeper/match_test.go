package gatekeeper

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
)

// A mutator matches the new object only, whereas a constraint matches the new or the old one.
func TestMatchOfUpdates(t *testing.T) {
	const (
		metadata = "apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: {name: a}\nspec:\n" +
			"  location: metadata.annotations.new\n  parameters: {assign: {value: x}}\n  match: "
		assign = "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n" +
			"  location: spec.hostPID\n  parameters: {assign: {value: true}}\n  applyTo: "
		applied = "{groups: [''], versions: [v1], kinds: [Pod]"
		old     = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {tier: web}}\nspec: {containers: []}\n"
		object  = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {app: web}}\nspec: {containers: []}\n"
	)
	tests := map[string]struct {
		source                 string
		wantUpdate, wantCreate bool
	}{
		"labels of the old object": {source: metadata + "{labelSelector: {matchLabels: {tier: web}}}\n"},
		"labels of the new object": {
			source:     metadata + "{labelSelector: {matchLabels: {app: web}}}\n",
			wantUpdate: true, wantCreate: true,
		},
		"absent in the new object": {
			source:     metadata + "{labelSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}}\n",
			wantUpdate: true, wantCreate: true,
		},
		"not in": {
			source:     metadata + "{labelSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web, api]}]}}\n",
			wantUpdate: false,
		},
		"the name":   {source: metadata + "{name: 'w*'}\n", wantUpdate: true, wantCreate: true},
		"operations": {source: assign + "[" + applied + ", operations: [UPDATE]}]\n", wantUpdate: true},
		"all operations": {
			source: assign + "[" + applied + ", operations: ['*']}]\n", wantUpdate: true, wantCreate: true,
		},
		"another version":  {source: assign + "[{groups: [''], versions: [v2], kinds: [Pod]}]\n"},
		"several versions": {source: assign + "[{groups: [''], versions: [v2], kinds: [Pod]}, " + applied + "}]\n", wantUpdate: true, wantCreate: true},
		"a constraint": {
			source:     template1 + "{labelSelector: {matchLabels: {tier: web}}}\n",
			wantUpdate: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			engine := convertText(t, tt.source)
			for operation, want := range map[admissionv1.Operation]bool{
				admissionv1.Update: tt.wantUpdate, admissionv1.Create: tt.wantCreate,
			} {
				before := oneObject(t, old)
				if operation == admissionv1.Create {
					before = nil
				}
				request, err := engine.APIs.NewRequest(
					oneObject(t, object),
					before,
					offline.RequestOptions{Operation: operation},
				)
				if err != nil {
					t.Fatal(err)
				}
				result, err := engine.Evaluate(
					t.Context(),
					request,
					offline.NewWorld(engine.APIs, nil, nil, offline.Answers(nil)),
					offline.Options{},
				)
				if err != nil {
					t.Fatal(err)
				}
				if got := result.Changed || !result.Allowed; got != want {
					t.Errorf("%s: has an effect: %v, want %v", operation, got, want)
				}
			}
		})
	}
}

// The report says that the labels of a Namespace before its UPDATE select no constraint.
func TestFormerLabelsOfNamespaces(t *testing.T) {
	const selector = "namespaceSelector: {matchLabels: {team: red}}"
	const mutator = "apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: {name: a}\nspec:\n" +
		"  location: metadata.annotations.new\n  parameters: {assign: {value: x}}\n  match: "
	tests := map[string]struct {
		source string
		want   bool
	}{
		"every kind":         {source: template1 + "{" + selector + "}\n", want: true},
		"Namespaces":         {source: template1 + "{" + selector + ", kinds: [{apiGroups: [''], kinds: [Namespace]}]}\n", want: true},
		"Pods":               {source: template1 + "{" + selector + ", kinds: [{apiGroups: [''], kinds: [Pod]}]}\n"},
		"another group":      {source: template1 + "{" + selector + ", kinds: [{apiGroups: [apps], kinds: ['*']}]}\n"},
		"namespaced objects": {source: template1 + "{" + selector + ", scope: Namespaced}\n"},
		"other operations": {
			source: strings.Replace(template1, "  - target: ", "  - operations: [CREATE, DELETE]\n    target: ", 1) + "{" + selector + "}\n",
		},
		"no selector": {source: template1 + "{namespaces: [shop]}\n"},
		"a mutator":   {source: mutator + "{" + selector + "}\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := load.Text(t.Context(), "in.yaml", []byte(tt.source))
			if err != nil {
				t.Fatal(err)
			}
			converted, err := Source().Convert(&conversion.Input{
				Objects: objects,
				All:     objects,
				Options: conversion.Options{Params: conversion.ParamsConstants},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := false
			for _, c := range converted {
				got = got || slices.ContainsFunc(c.Rows, func(r conversion.Row) bool {
					return r.Outcome == conversion.Changed && strings.HasPrefix(r.Detail, "an UPDATE of a Namespace")
				})
			}
			if got != tt.want {
				t.Errorf("got the note: %v, want %v", got, tt.want)
			}
		})
	}
}

func oneObject(t *testing.T, text string) *load.Object {
	t.Helper()
	objects, err := load.Text(t.Context(), "object.yaml", []byte(text))
	if err != nil || len(objects) != 1 {
		t.Fatalf("got %v and %v, want one object", objects, err)
	}
	return &objects[0]
}
