package defaultclass_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func class(kind, name, created, annotation string) string {
	return fmt.Sprintf("{kind: %s, metadata: {name: %s, creationTimestamp: '2030-01-01T%s:00Z', annotations: "+
		"{%s: 'true'}}}", kind, name, created, annotation)
}

func TestClasses(t *testing.T) {
	storage, ingress := "storageclass.kubernetes.io/is-default-class", "ingressclass.kubernetes.io/is-default-class"
	host := policy.Environment{Listed: plugintest.Objects{
		"StorageClass": {
			class("StorageClass", "old", "10:00", storage), class("StorageClass", "b", "11:00", storage),
			class("StorageClass", "a", "11:00", "storageclass.beta.kubernetes.io/is-default-class"),
			class("StorageClass", "fast", "12:00", "other"),
		},
		"IngressClass": {class("IngressClass", "front", "10:00", ingress), class("IngressClass", "inner", "12:00", "other")},
	}}
	const (
		claims, ingresses = "DefaultStorageClass", "DefaultIngressClass"
		written           = "managedFields: [{operation: Update, fieldsV1: {'f:spec': {'f:storageClassName': {}}}}]"
		left              = "managedFields: [{operation: Update, fieldsV1: {'f:spec': {'f:resources': {}}}}]"
		selecting         = "namespaces: [{namespaceSelector: {matchLabels: {tier: prod}}, className: fast}]"
	)
	tests := map[string]struct {
		plugin, config, meta, spec string
		annotations, labels        map[string]string
		params                     policy.Params
		want, refused              string
	}{
		"the newest default": {plugin: claims, want: `"a"`},
		"of the annotation": {
			plugin:      claims,
			annotations: map[string]string{"admission.ostiary.dev/default-storage-class": "fast"},
			want:        `"fast"`,
		},
		"of another annotation": {
			plugin:      claims,
			config:      "namespaceAnnotation: x",
			annotations: map[string]string{"x": "fast"},
			want:        `"fast"`,
		},
		"of a selector":  {plugin: claims, config: selecting, labels: map[string]string{"tier": "prod"}, want: `"fast"`},
		"of no selector": {plugin: claims, config: selecting, labels: map[string]string{"tier": "test"}, want: `"a"`},
		"the annotation before a selector": {
			plugin:      claims,
			config:      selecting,
			labels:      map[string]string{"tier": "prod"},
			annotations: map[string]string{"admission.ostiary.dev/default-storage-class": "old"},
			want:        `"old"`,
		},
		"the API server's is replaced": {
			plugin:      claims,
			meta:        left,
			spec:        "storageClassName: b",
			annotations: map[string]string{"admission.ostiary.dev/default-storage-class": "fast"},
			want:        `"fast"`,
		},
		"the API server's stays": {plugin: claims, meta: left, spec: "storageClassName: b", want: `"b"`},
		"the author's": {
			plugin:      claims,
			meta:        written,
			spec:        "storageClassName: b",
			annotations: map[string]string{"admission.ostiary.dev/default-storage-class": "fast"},
			want:        `"b"`,
		},
		"without managedFields": {
			plugin:      claims,
			spec:        "storageClassName: b",
			annotations: map[string]string{"admission.ostiary.dev/default-storage-class": "fast"},
			want:        `"b"`,
		},
		"the author's none":   {plugin: claims, meta: written, spec: "storageClassName: ''", want: `""`},
		"named by annotation": {plugin: claims, meta: "annotations: {volume.beta.kubernetes.io/storage-class: x}"},
		"one that does not exist": {
			plugin:      claims,
			annotations: map[string]string{"admission.ostiary.dev/default-storage-class": "slow"},
			refused: `persistentvolumeclaims "web" is forbidden: the annotation ` +
				`admission.ostiary.dev/default-storage-class of namespace shop names the StorageClass "slow", which does not exist`,
		},
		"classes are not known": {
			plugin:  claims,
			params:  plugintest.Objects{},
			refused: "objects of kind StorageClass in storage.k8s.io/v1 are still being listed",
		},
		"there are none":       {plugin: claims, params: plugintest.Objects{"StorageClass": nil}},
		"ingress: the default": {plugin: ingresses, want: `"front"`},
		"ingress: of the annotation": {
			plugin:      ingresses,
			annotations: map[string]string{"admission.ostiary.dev/default-ingress-class": "inner"},
			want:        `"inner"`,
		},
		"ingress: named by the old annotation": {plugin: ingresses, meta: "annotations: {kubernetes.io/ingress.class: x}"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kind, resource, field := "{apiVersion: v1, kind: PersistentVolumeClaim", metav1.GroupVersionResource{
				Version:  "v1",
				Resource: "persistentvolumeclaims",
			}, "storageClassName"
			if tc.plugin == ingresses {
				kind, resource, field = "{apiVersion: networking.k8s.io/v1, kind: Ingress", metav1.GroupVersionResource{
					Group:    "networking.k8s.io",
					Version:  "v1",
					Resource: "ingresses",
				}, "ingressClassName"
			}
			own := host
			if tc.params != nil {
				own.Listed = tc.params
			}
			own.Namespaces = plugintest.Namespaces{Annotations: tc.annotations, Labels: tc.labels}
			r := plugintest.Request{Resource: resource, Object: kind + ", metadata: {name: web, " + tc.meta + "}, spec: {" + tc.spec + "}}"}
			got := plugintest.Ask(t, "plugin: {name: "+tc.plugin+", config: {"+tc.config+"}}", r, own)
			if class := got.Field("spec", field); class != tc.want || got.Message != tc.refused || tc.refused == "" && got.Code != 0 {
				t.Errorf("%d %q, class %s, want %q, %s", got.Code, got.Message, class, tc.refused, tc.want)
			}
		})
	}
}
