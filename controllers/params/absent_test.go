package params

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
)

func TestAbsent(t *testing.T) {
	core, acme := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "acme.io", Version: "v1"}
	served := map[schema.GroupVersion][]metav1.APIResource{
		core: {{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "nodes", Kind: "Node"}},
		acme: nil, // its server does not answer
	}
	existing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name":      "there",
			"namespace": "default",
			"labels":    map[string]any{"a": "b"},
		},
	}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		core.WithResource("configmaps"): "ConfigMapList", core.WithResource("nodes"): "NodeList",
	}, existing)
	s := New(Options{Client: client})
	const configMaps = "paramKind: {apiVersion: v1, kind: ConfigMap}\n"
	const at = "spec.bindings[0].paramRef: "
	tests := map[string]struct {
		spec string
		want []string
	}{
		"no params": {spec: "{}"},
		"there":     {spec: configMaps + "bindings: [{name: b, paramRef: {name: there, namespace: default}}]"},
		"not there": {
			spec: configMaps + "bindings: [{name: b, paramRef: {name: x, namespace: default, parameterNotFoundAction: Deny}}]",
			want: []string{at + "ConfigMap default/x does not exist: until it does, every request is denied"},
		},
		"not there, by default": {
			spec: configMaps + "bindings: [{name: b, paramRef: {name: x, namespace: default}}]",
			want: []string{at + "ConfigMap default/x does not exist: until it does, every request is denied"},
		},
		"not there, Ignore": {
			spec: configMaps + "failurePolicy: Ignore\nbindings: [{name: b, paramRef: {name: x, namespace: default, " +
				"parameterNotFoundAction: Deny}}]",
			want: []string{at + "ConfigMap default/x does not exist: until it does, the binding has no effect"},
		},
		"not there, allowed": {
			spec: configMaps + "bindings: [{name: b, paramRef: {name: x, namespace: default, parameterNotFoundAction: Allow}}]",
		},
		"in the request's namespace": {spec: configMaps + "bindings: [{name: b, paramRef: {name: x}}]"},
		"cluster-scoped": {
			spec: "paramKind: {apiVersion: v1, kind: Node}\nbindings: [{name: b, paramRef: {name: x}}]",
			want: []string{at + "Node x does not exist: until it does, every request is denied"},
		},
		"selected": {
			spec: configMaps + "bindings: [{name: b, paramRef: {selector: {matchLabels: {a: b}}, namespace: default}}]",
		},
		"none is selected": {
			spec: configMaps + "bindings: [{name: b, paramRef: {selector: {matchLabels: {a: c}}, namespace: default}}]",
			want: []string{
				at + `no ConfigMap in namespace default matches the selector "a=c": until one does, every request is denied`,
			},
		},
		"a misspelt kind": {
			spec: "paramKind: {apiVersion: v1, kind: ConfigMpa}\nbindings: [{name: b, paramRef: {name: x}}]",
			want: []string{"spec.paramKind: the API server has no kind ConfigMpa in v1, did you mean ConfigMap?"},
		},
		"a kind in another version": {
			spec: "paramKind: {apiVersion: v2, kind: ConfigMap}\nbindings: [{name: b, paramRef: {name: x}}]",
			want: []string{"spec.paramKind: the API server has no kind ConfigMap in v2: it is in v1"},
		},
		"an unknown kind": {
			spec: "paramKind: {apiVersion: example.com/v1, kind: Rocket}\nbindings: [{name: b, paramRef: {name: x}}]",
			want: []string{
				"spec.paramKind: the API server has no kind Rocket in example.com/v1: install it, or correct spec.paramKind",
			},
		},
		"a version that is down": {
			spec: "paramKind: {apiVersion: acme.io/v1, kind: Rocket}\nbindings: [{name: b, paramRef: {name: x}}]",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.WebhookPolicy{}
			if err := yaml.UnmarshalStrict([]byte(tt.spec), &p.Spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, advice.Texts(s.Absent(t.Context(), p, served))); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if got := s.Absent(t.Context(), p, nil); got != nil {
				t.Errorf("warnings without knowledge of the resources: %q", got)
			}
		})
	}
}
