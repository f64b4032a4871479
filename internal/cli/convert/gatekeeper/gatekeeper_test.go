package gatekeeper

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/cli/convert/conversion"
	"github.com/ostiary/ostiary/internal/cli/load"
	"github.com/ostiary/ostiary/internal/cli/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

const template1 = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8sdeny}
spec:
  crd: {spec: {names: {kind: K8sDeny}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code: [{engine: K8sNativeValidation, source: {validations: [{expression: "false", message: denied}]}}]
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sDeny
metadata: {name: deny}
spec:
  match: `

// A constraint matches the requests that Gatekeeper matches.
func TestMatch(t *testing.T) {
	const (
		pod        = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {tier: web}}\n"
		generated  = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: web-, namespace: shop}\n"
		deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: kube-apps}\n"
		namespace  = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}\n"
		role       = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: web}\n"
	)
	tests := map[string]struct {
		match string
		want  map[string]bool
	}{
		"everything":               {match: "{}", want: map[string]bool{pod: true, deployment: true, namespace: true, role: true}},
		"a kind":                   {match: "{kinds: [{apiGroups: [''], kinds: [Pod]}]}", want: map[string]bool{pod: true, deployment: false, namespace: false}},
		"a group":                  {match: "{kinds: [{apiGroups: [apps], kinds: ['*']}]}", want: map[string]bool{pod: false, deployment: true}},
		"groups and kinds":         {match: "{kinds: [{apiGroups: ['', apps], kinds: [Pod, Deployment]}]}", want: map[string]bool{pod: true, deployment: true, namespace: false}},
		"a kind of every group":    {match: "{kinds: [{apiGroups: ['*'], kinds: [Deployment]}]}", want: map[string]bool{pod: false, deployment: true}},
		"Cluster":                  {match: "{scope: Cluster}", want: map[string]bool{pod: false, namespace: true, role: true}},
		"Namespaced":               {match: "{scope: Namespaced}", want: map[string]bool{pod: true, namespace: false, role: false}},
		"a namespace":              {match: "{namespaces: [shop]}", want: map[string]bool{pod: true, deployment: false, namespace: true, role: true}},
		"a prefix":                 {match: "{namespaces: ['kube-*', shop]}", want: map[string]bool{pod: true, deployment: true, role: true}},
		"another prefix":           {match: "{namespaces: ['kube-*']}", want: map[string]bool{pod: false, deployment: true, namespace: false, role: true}},
		"an excluded namespace":    {match: "{excludedNamespaces: [shop]}", want: map[string]bool{pod: false, deployment: true, namespace: false, role: true}},
		"an excluded suffix":       {match: "{excludedNamespaces: ['*op']}", want: map[string]bool{pod: false, deployment: true, namespace: false, role: true}},
		"in and not in":            {match: "{namespaces: [shop, kube-apps], excludedNamespaces: ['kube-*']}", want: map[string]bool{pod: true, deployment: false}},
		"labels":                   {match: "{labelSelector: {matchLabels: {tier: web}}}", want: map[string]bool{pod: true, deployment: false}},
		"labels of the namespace":  {match: "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}", want: map[string]bool{pod: true, deployment: false, role: true}},
		"a name":                   {match: "{name: web}", want: map[string]bool{pod: false, deployment: true, generated: false}},
		"a prefix of the name":     {match: "{name: 'web*'}", want: map[string]bool{pod: true, deployment: true, generated: true, namespace: false}},
		"a suffix of the name":     {match: "{name: '*-1'}", want: map[string]bool{pod: true, deployment: false, generated: false}},
		"original objects":         {match: "{source: Original, kinds: [{kinds: [Pod]}]}", want: map[string]bool{pod: true, deployment: false}},
		"groups without resources": {match: "{kinds: [{apiGroups: [example.com], kinds: [Pod]}]}", want: map[string]bool{pod: false}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			engine := convertText(t, template1+tt.match+"\n")
			for text, want := range tt.want {
				if got := !evaluate(t, engine, text).Allowed; got != want {
					t.Errorf("matches %v, want %v:\n%s", got, want, text)
				}
			}
		})
	}
}

func TestMutators(t *testing.T) {
	const head = "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n  applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]\n"
	const metadata = "apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: {name: a}\nspec:\n"
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}]\n"
	tests := map[string]struct{ mutator, object, want string }{
		"a field":                  {mutator: head + "  location: spec.terminationGracePeriodSeconds\n  parameters: {assign: {value: 9}}\n", want: pod + "  terminationGracePeriodSeconds: 9\n"},
		"a new parent":             {mutator: head + "  location: spec.securityContext.runAsNonRoot\n  parameters: {assign: {value: true}}\n", want: pod + "  securityContext: {runAsNonRoot: true}\n"},
		"all elements":             {mutator: head + "  location: 'spec.containers[name: *].imagePullPolicy'\n  parameters: {assign: {value: Always}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Always}, {name: b, image: b, imagePullPolicy: Always}]\n"},
		"elements without a value": {mutator: head + "  location: 'spec.containers[name:*].imagePullPolicy'\n  parameters: {assign: {value: Always}, pathTests: [{subPath: 'spec.containers[name:*].imagePullPolicy', condition: MustNotExist}]}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b, imagePullPolicy: Always}]\n"},
		"no element":               {mutator: head + "  location: 'spec.initContainers[name:*].imagePullPolicy'\n  parameters: {assign: {value: Always}}\n", want: pod},
		"one element":              {mutator: head + "  location: 'spec.containers[name: b].imagePullPolicy'\n  parameters: {assign: {value: Always}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b, imagePullPolicy: Always}]\n"},
		"a new element":            {mutator: head + "  location: 'spec.containers[name: c].image'\n  parameters: {assign: {value: c}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}, {name: c, image: c}]\n"},
		"a path that must exist":   {mutator: head + "  location: spec.securityContext.runAsNonRoot\n  parameters: {assign: {value: true}, pathTests: [{subPath: spec.securityContext, condition: MustExist}]}\n", want: pod},
		"another kind":             {mutator: "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n  applyTo: [{groups: [''], versions: [v1], kinds: [Service]}]\n  location: spec.x\n  parameters: {assign: {value: 9}}\n", want: pod},
		"a label":                  {mutator: metadata + "  location: metadata.labels.team\n  parameters: {assign: {value: shop}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {team: shop}}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}]\n"},
		"the namespace":            {mutator: metadata + "  location: 'metadata.annotations.\"example.com/ns\"'\n  parameters: {assign: {fromMetadata: {field: namespace}}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, annotations: {example.com/ns: shop}}\nspec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}]\n"},
		"a label that exists": {mutator: metadata + "  location: metadata.labels.team\n  parameters: {assign: {value: shop}}\n",
			object: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {team: search}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {team: search}}\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			object := tt.object
			if object == "" {
				object = pod
			}
			result := evaluate(t, convertText(t, tt.mutator), object)
			if !result.Allowed {
				t.Fatalf("got %v, want an object", result.Denials)
			}
			var got, want any
			if err := yaml.Unmarshal(result.Object, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func convertText(t *testing.T, text string) *offline.Engine {
	t.Helper()
	objects, err := load.Text(t.Context(), "in.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	converted, err := Source{}.Convert(&conversion.Input{Objects: objects, All: objects, Options: conversion.Options{Params: conversion.ParamsConstants}})
	if err != nil {
		t.Fatal(err)
	}
	var policies []offline.Policy
	for _, c := range converted {
		for _, row := range c.Rows {
			if row.Outcome == conversion.LeftOut {
				t.Fatalf("%s is left out: %s", row.Rule, row.Detail)
			}
		}
		for _, o := range c.Outputs {
			policies = append(policies, offline.Policy{WebhookPolicy: o.Policy(), Source: c.Source})
		}
	}
	apis, err := offline.NewAPIs(policy.LatestEngine, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := offline.NewEngine(policies, policy.NewCompiler(), apis)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func evaluate(t *testing.T, engine *offline.Engine, text string) *offline.Result {
	t.Helper()
	objects, err := load.Text(t.Context(), "object.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	request, err := engine.APIs.NewRequest(&objects[0], nil, offline.RequestOptions{Operation: admissionv1.Create})
	if err != nil {
		t.Fatal(err)
	}
	result, err := engine.Evaluate(t.Context(), request, offline.NewWorld(engine.APIs, nil, nil, offline.Answers(nil)), offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestParseLocation(t *testing.T) {
	tests := map[string]struct {
		text      string
		want      []node
		wantError bool
	}{
		"fields":        {text: "spec.a.b", want: []node{{name: "spec"}, {name: "a"}, {name: "b"}}},
		"a wildcard":    {text: "spec.a[name: *].b", want: []node{{name: "spec"}, {name: "a", key: "name", value: "*"}, {name: "b"}}},
		"a value":       {text: `spec.a["name":'x y'].b`, want: []node{{name: "spec"}, {name: "a", key: "name", value: "x y"}, {name: "b"}}},
		"quotes":        {text: `metadata.labels."a.b/c"`, want: []node{{name: "metadata"}, {name: "labels"}, {name: "a.b/c"}}},
		"at the end":    {text: "spec.a[name: *]", want: []node{{name: "spec"}, {name: "a", key: "name", value: "*"}}},
		"empty":         {wantError: true},
		"a dot":         {text: "spec.", wantError: true},
		"two dots":      {text: "spec..a", wantError: true},
		"half a list":   {text: "spec.a[name", wantError: true},
		"half a quote":  {text: `spec."a`, wantError: true},
		"no key":        {text: "spec.a[*].b", wantError: true},
		"after a quote": {text: `spec."a"b`, wantError: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseLocation(tt.text)
			if (err != nil) != tt.wantError {
				t.Fatalf("got %v, want an error: %v", err, tt.wantError)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(node{})); err == nil && diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}
