package gatekeeper

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
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
		"everything": {match: "{}", want: map[string]bool{pod: true, deployment: true, namespace: true, role: true}},
		"a kind": {
			match: "{kinds: [{apiGroups: [''], kinds: [Pod]}]}",
			want:  map[string]bool{pod: true, deployment: false, namespace: false},
		},
		"a group": {
			match: "{kinds: [{apiGroups: [apps], kinds: ['*']}]}",
			want:  map[string]bool{pod: false, deployment: true},
		},
		"groups and kinds": {
			match: "{kinds: [{apiGroups: ['', apps], kinds: [Pod, Deployment]}]}",
			want:  map[string]bool{pod: true, deployment: true, namespace: false},
		},
		"a kind of every group": {
			match: "{kinds: [{apiGroups: ['*'], kinds: [Deployment]}]}",
			want:  map[string]bool{pod: false, deployment: true},
		},
		"Cluster":    {match: "{scope: Cluster}", want: map[string]bool{pod: false, namespace: true, role: true}},
		"Namespaced": {match: "{scope: Namespaced}", want: map[string]bool{pod: true, namespace: false, role: false}},
		"a namespace": {
			match: "{namespaces: [shop]}",
			want:  map[string]bool{pod: true, deployment: false, namespace: true, role: true},
		},
		"a prefix": {match: "{namespaces: ['kube-*', shop]}", want: map[string]bool{pod: true, deployment: true, role: true}},
		"another prefix": {
			match: "{namespaces: ['kube-*']}",
			want:  map[string]bool{pod: false, deployment: true, namespace: false, role: true},
		},
		"an excluded namespace": {
			match: "{excludedNamespaces: [shop]}",
			want:  map[string]bool{pod: false, deployment: true, namespace: false, role: true},
		},
		"an excluded suffix": {
			match: "{excludedNamespaces: ['*op']}",
			want:  map[string]bool{pod: false, deployment: true, namespace: false, role: true},
		},
		"in and not in": {
			match: "{namespaces: [shop, kube-apps], excludedNamespaces: ['kube-*']}",
			want:  map[string]bool{pod: true, deployment: false},
		},
		"labels": {match: "{labelSelector: {matchLabels: {tier: web}}}", want: map[string]bool{pod: true, deployment: false}},
		"labels of the namespace": {
			match: "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}",
			want:  map[string]bool{pod: true, deployment: false, role: true},
		},
		"a name": {match: "{name: web}", want: map[string]bool{pod: false, deployment: true, generated: false}},
		"a prefix of the name": {
			match: "{name: 'web*'}",
			want:  map[string]bool{pod: true, deployment: true, generated: true, namespace: false},
		},
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
	const head = "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n" +
		"  applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]\n"
	const metadata = "apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: {name: a}\nspec:\n"
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
		"  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}]\n"
	const image = "apiVersion: mutations.gatekeeper.sh/v1alpha1\nkind: AssignImage\nmetadata: {name: a}\nspec:\n" +
		"  applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]\n"
	const set = "apiVersion: mutations.gatekeeper.sh/v1\nkind: ModifySet\nmetadata: {name: a}\nspec:\n" +
		"  applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]\n"
	const args = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
		"spec: {containers: [{name: a, args: [p, q, p]}, {name: b}]}\n"
	tests := map[string]struct{ mutator, object, want string }{
		"images": {
			mutator: image + "  location: 'spec.containers[name:*].image'\n  parameters: {assignDomain: registry.test, assignTag: ':1'}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
				"  containers: [{name: a, image: 'registry.test/a:1', imagePullPolicy: Never}, {name: b, image: 'registry.test/b:1'}]\n",
		},
		"the image of one element": {
			mutator: image + "  location: 'spec.containers[name: b].image'\n  parameters: {assignPath: other}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
				"  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: other}]\n",
		},
		"an image with a test": {
			mutator: image + "  location: 'spec.containers[name:*].image'\n  parameters: {assignTag: ':1', pathTests: " +
				"[{subPath: 'spec.containers[name:*].image', condition: MustNotExist}]}\n",
			want: pod,
		},
		"no image": {
			mutator: image + "  location: 'spec.containers[name:*].image'\n  parameters: {assignDomain: registry.test, " +
				"assignPath: app, assignTag: ':1'}\n",
			object: args,
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {containers: [{name: a, image: 'registry.test/app:1', args: [p, q, p]}, {name: b, image: 'registry.test/app:1'}]}\n",
		},
		"values are added": {
			mutator: set + "  location: 'spec.containers[name:*].args'\n  parameters: {values: {fromList: [q, r]}}\n",
			object:  args,
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {containers: [{name: a, args: [p, q, p, r]}, {name: b, args: [q, r]}]}\n",
		},
		"values are removed": {
			mutator: set + "  location: 'spec.containers[name:*].args'\n  parameters: {operation: prune, values: {fromList: [p, r]}}\n",
			object:  args,
			want:    "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: a, args: [q]}, {name: b}]}\n",
		},
		"a set with a test": {
			mutator: set + "  location: 'spec.containers[name:*].args'\n  parameters: {operation: merge, values: {fromList: " +
				"[r]}, pathTests: [{subPath: 'spec.containers[name:*].args', condition: MustExist}]}\n",
			object: args,
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {containers: [{name: a, args: [p, q, p, r]}, {name: b}]}\n",
		},
		"a set in absent parents": {
			mutator: set + "  location: 'spec.containers[name:*].securityContext.capabilities.drop'\n" +
				"  parameters: {operation: merge, values: {fromList: [ALL]}}\n",
			object: args,
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {containers: [{name: a, args: [p, q, p], securityContext: {capabilities: {drop: [ALL]}}}, {name: b, " +
				"securityContext: {capabilities: {drop: [ALL]}}}]}\n",
		},
		"a set of the object": {
			mutator: set + "  location: spec.securityContext.supplementalGroups\n  parameters: {values: {fromList: [7, 8]}}\n",
			object:  "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {securityContext: {supplementalGroups: [8]}}\n",
			want:    "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {securityContext: {supplementalGroups: [8, 7]}}\n",
		},
		"no set to remove from": {
			mutator: set + "  location: spec.securityContext.supplementalGroups\n  parameters: {operation: prune, values: {fromList: [7]}}\n",
			object:  args,
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {securityContext: {}, containers: [{name: a, args: [p, q, p]}, {name: b}]}\n",
		},
		"no elements": {
			mutator: set + "  location: 'spec.initContainers[name:*].args'\n  parameters: {values: {fromList: [p]}}\n",
			object:  args,
			want:    args,
		},
		"a field": {
			mutator: head + "  location: spec.terminationGracePeriodSeconds\n  parameters: {assign: {value: 9}}\n",
			want:    pod + "  terminationGracePeriodSeconds: 9\n",
		},
		"a map that API servers replace": {
			mutator: head + "  location: spec.nodeSelector.pool\n  parameters: {assign: {value: web}}\n",
			object: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {nodeSelector: {disk: ssd}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {nodeSelector: {disk: ssd, pool: web}}\n",
		},
		"a new map that API servers replace": {
			mutator: head + "  location: spec.nodeSelector.pool\n  parameters: {assign: {value: web}}\n",
			want:    pod + "  nodeSelector: {pool: web}\n",
		},
		"a map that API servers replace, with a test": {
			mutator: head + "  location: spec.nodeSelector.pool\n  parameters: {assign: {value: web}, pathTests: " +
				"[{subPath: spec.nodeSelector.pool, condition: MustNotExist}]}\n",
			object: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {nodeSelector: {pool: db}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {nodeSelector: {pool: db}}\n",
		},
		"a map of a template that API servers replace": {
			mutator: "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n" +
				"  applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]\n" +
				"  location: spec.template.spec.nodeSelector.pool\n  parameters: {assign: {value: web}}\n",
			object: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {template: {spec: {containers: []}}}\n",
			want: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {template: {spec: {containers: [], nodeSelector: {pool: web}}}}\n",
		},
		"an object in all elements that API servers replace": {
			mutator: head + "  location: 'spec.volumes[name: *].csi.nodePublishSecretRef.name'\n" +
				"  parameters: {assign: {value: z}}\n",
			object: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {volumes: [{name: a, csi: {driver: d}}, {name: b, csi: {driver: d, nodePublishSecretRef: {name: y}}}]}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
				"spec: {volumes: [{name: a, csi: {driver: d, nodePublishSecretRef: {name: z}}}, " +
				"{name: b, csi: {driver: d, nodePublishSecretRef: {name: z}}}]}\n",
		},
		"a new parent": {
			mutator: head + "  location: spec.securityContext.runAsNonRoot\n  parameters: {assign: {value: true}}\n",
			want:    pod + "  securityContext: {runAsNonRoot: true}\n",
		},
		"all elements": {
			mutator: head + "  location: 'spec.containers[name: *].imagePullPolicy'\n  parameters: {assign: {value: Always}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
				"  containers: [{name: a, image: a, imagePullPolicy: Always}, {name: b, image: b, imagePullPolicy: Always}]\n",
		},
		"elements without a value": {
			mutator: head + "  location: 'spec.containers[name:*].imagePullPolicy'\n" +
				"  parameters: {assign: {value: Always}, pathTests: [{subPath: 'spec.containers[name:*].imagePullPolicy', condition: MustNotExist}]}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
				"  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b, imagePullPolicy: Always}]\n",
		},
		"no element": {
			mutator: head + "  location: 'spec.initContainers[name:*].imagePullPolicy'\n  parameters: {assign: {value: Always}}\n",
			want:    pod,
		},
		"one element": {
			mutator: head + "  location: 'spec.containers[name: b].imagePullPolicy'\n  parameters: {assign: {value: Always}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
				"  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b, imagePullPolicy: Always}]\n",
		},
		"a new element": {
			mutator: head + "  location: 'spec.containers[name: c].image'\n  parameters: {assign: {value: c}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec:\n" +
				"  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}, {name: c, image: c}]\n",
		},
		"a path that must exist": {
			mutator: head + "  location: spec.securityContext.runAsNonRoot\n  parameters: {assign: {value: true}, pathTests: " +
				"[{subPath: spec.securityContext, condition: MustExist}]}\n",
			want: pod,
		},
		"another kind": {
			mutator: "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n" +
				"  applyTo: [{groups: [''], versions: [v1], kinds: [Service]}]\n  location: spec.x\n  parameters: {assign: {value: 9}}\n",
			want: pod,
		},
		"a label": {
			mutator: metadata + "  location: metadata.labels.team\n  parameters: {assign: {value: shop}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {team: shop}}\nspec:\n" +
				"  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}]\n",
		},
		"the namespace": {
			mutator: metadata + "  location: 'metadata.annotations.\"example.com/ns\"'\n" +
				"  parameters: {assign: {fromMetadata: {field: namespace}}}\n",
			want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, annotations: {example.com/ns: shop}}\n" +
				"spec:\n  containers: [{name: a, image: a, imagePullPolicy: Never}, {name: b, image: b}]\n",
		},
		"the namespace of a Namespace": {
			mutator: metadata + "  location: metadata.annotations.ns\n  parameters: {assign: {fromMetadata: {field: namespace}}}\n",
			object:  "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
			want:    "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {ns: ''}}\n",
		},
		"a label that exists": {mutator: metadata + "  location: metadata.labels.team\n  parameters: {assign: {value: shop}}\n",
			object: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: " +
				"{team: search}}\n", want: "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {team: search}}\n"},
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
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

// The parts of images are those of Gatekeeper, written here without regular expressions.
func TestAssignImage(t *testing.T) {
	images := []string{"", "a", "a:1", "a@sha256:" + strings.Repeat("0", 64), "a:1@sha256:" + strings.Repeat("0", 64),
		"a/b", "a/b/c:1", "registry.test/a", "registry.test:5000/a/b:1", "registry:5000/a",
		"localhost/a:1", "localhost:80/a", "localhostx/a", "/a", "a.b", "a.b:1", "a.b/c.d:e", "a:1/b", "a@b/c", ":1", "/", "registry.test/", "a//b.c:2"}
	assigned := []string{"", "registry.test", "", "other/path", "", ":2"}
	for i := 1; i < 8; i++ {
		domain, path, tag := assigned[i&1], assigned[2+i>>1&1], assigned[4+i>>2&1]
		engine := convertText(t, fmt.Sprintf("apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignImage\n"+
			"metadata: {name: a}\nspec:\n  applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}]\n"+
			"  location: 'spec.containers[name:*].image'\n  parameters: {assignDomain: %q, assignPath: %q, assignTag: %q}\n", domain, path, tag))
		for _, image := range images {
			result := evaluate(t, engine, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"+
				"spec: {containers: [{name: a, image: %q}]}\n", image))
			var got struct {
				Spec struct{ Containers []struct{ Image string } }
			}
			if err := yaml.Unmarshal(result.Object, &got); err != nil {
				t.Fatal(err)
			}
			if want := assignedImage(image, domain, path, tag); len(got.Spec.Containers) != 1 || got.Spec.Containers[0].Image != want {
				t.Errorf("%q with %q, %q, %q: got %+v, want %q", image, domain, path, tag, got, want)
			}
		}
	}
}

func assignedImage(image, domain, path, tag string) string {
	registry, rest := "", image
	if first, after, found := strings.Cut(image, "/"); found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		registry, rest = first, after
	}
	end := strings.IndexAny(rest, ":@")
	if end < 0 {
		end = len(rest)
	}
	out := cmp.Or(path, rest[:end]) + cmp.Or(tag, rest[end:])
	if d := cmp.Or(domain, registry); d != "" {
		return d + "/" + out
	}
	return out
}

// What mutators have no exact counterpart for is left out with its field.
func TestMutatorsLeftOut(t *testing.T) {
	tests := map[string]struct{ kind, spec, want string }{
		"an image without parts": {
			kind: "AssignImage",
			spec: "location: 'spec.containers[name:*].image'",
			want: "spec.parameters.assignDomain",
		},
		"a tag without a separator": {
			kind: "AssignImage",
			spec: "location: 'spec.containers[name:*].image', parameters: {assignTag: latest}",
			want: "spec.parameters.assignTag",
		},
		"a path with a registry": {
			kind: "AssignImage",
			spec: "location: 'spec.containers[name:*].image', parameters: {assignPath: registry.test/a}",
			want: "spec.parameters.assignPath",
		},
		"an image and a value": {
			kind: "AssignImage",
			spec: "location: spec.image, parameters: {assignTag: ':1', assign: {value: a}}",
			want: "spec.parameters",
		},
		"a set in a named element": {
			kind: "ModifySet",
			spec: "location: 'spec.containers[name: a].args', parameters: {values: {fromList: [a]}}",
			want: "spec.location",
		},
		"a set of metadata": {
			kind: "ModifySet",
			spec: "location: metadata.finalizers, parameters: {values: {fromList: [a]}}",
			want: "spec.location",
		},
		"a set of objects": {
			kind: "ModifySet",
			spec: "location: spec.list, parameters: {values: {fromList: [{a: b}]}}",
			want: "spec.parameters.values.fromList[0]",
		},
		"a value that is twice in a set": {
			kind: "ModifySet",
			spec: "location: spec.list, parameters: {values: {fromList: [a, a]}}",
			want: "spec.parameters.values.fromList[1]",
		},
		"a map that API servers replace in one element": {
			kind: "Assign",
			spec: "location: 'spec.volumes[name: a].secret.items[key: b].path', parameters: {assign: {value: a}}",
			want: "spec.location",
		},
		"an atomic object in one element": {
			kind: "Assign",
			spec: "location: 'spec.volumes[name: a].csi.nodePublishSecretRef.name', parameters: {assign: {value: a}}",
			want: "spec.location",
		},
		"an unknown operation": {
			kind: "ModifySet",
			spec: "location: spec.list, parameters: {operation: replace}",
			want: "spec.parameters.operation",
		},
		"values of an Assign": {
			kind: "Assign",
			spec: "location: spec.list, parameters: {assign: {value: a}, values: {fromList: [a]}}",
			want: "spec.parameters",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := load.Text(t.Context(), "in.yaml",
				[]byte("apiVersion: mutations.gatekeeper.sh/v1\nkind: "+tt.kind+
					"\nmetadata: {name: a}\nspec: {applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}], "+tt.spec+"}\n"))
			if err != nil {
				t.Fatal(err)
			}
			converted, err := Source().Convert(&conversion.Input{Objects: objects, All: objects})
			if err != nil {
				t.Fatal(err)
			}
			if c := converted[0]; len(c.Outputs) != 0 || len(c.Rows) != 1 || c.Rows[0].Rule != tt.want || c.Rows[0].Outcome != conversion.LeftOut {
				t.Errorf("got %+v, want %s left out", c.Rows, tt.want)
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
	converted, err := Source().Convert(&conversion.Input{
		Objects: objects,
		All:     objects,
		Options: conversion.Options{Params: conversion.ParamsConstants},
	})
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

func evaluate(t *testing.T, engine *offline.Engine, text string, stored ...load.Object) *offline.Result {
	t.Helper()
	objects, err := load.Text(t.Context(), "object.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	request, err := engine.APIs.NewRequest(&objects[0], nil, offline.RequestOptions{Operation: admissionv1.Create})
	if err != nil {
		t.Fatal(err)
	}
	result, err := engine.Evaluate(t.Context(), request, offline.NewWorld(engine.APIs, nil, stored, offline.Answers(nil)), offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestParseLocation(t *testing.T) {
	tests := map[string]struct {
		text      string
		want      []locationNode
		wantError bool
	}{
		"fields": {text: "spec.a.b", want: []locationNode{{name: "spec"}, {name: "a"}, {name: "b"}}},
		"a wildcard": {
			text: "spec.a[name: *].b",
			want: []locationNode{{name: "spec"}, {name: "a", key: "name", value: "*"}, {name: "b"}},
		},
		"a value": {
			text: `spec.a["name":'x y'].b`,
			want: []locationNode{{name: "spec"}, {name: "a", key: "name", value: "x y"}, {name: "b"}},
		},
		"quotes":        {text: `metadata.labels."a.b/c"`, want: []locationNode{{name: "metadata"}, {name: "labels"}, {name: "a.b/c"}}},
		"at the end":    {text: "spec.a[name: *]", want: []locationNode{{name: "spec"}, {name: "a", key: "name", value: "*"}}},
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
			if diff := gocmp.Diff(tt.want, got, gocmp.AllowUnexported(locationNode{})); err == nil && diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}
