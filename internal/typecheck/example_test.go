package typecheck

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// TestExamples makes objects of custom resources. The schema and its rules are evaluated by the
// code of API servers.
func TestExamples(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	type spec = map[string]any
	for name, tc := range map[string]struct {
		spec string // its schema
		want []spec
	}{
		"required fields": {
			spec: `{type: object, required: [size], properties: {size: {type: integer, minimum: 3}, color: {type: string}}}`,
			want: []spec{{"size": int64(3)}, {"size": int64(3)}},
		},
		"defaults": {
			spec: `{type: object, properties: {replicas: {type: integer, default: 2}}}`,
			want: []spec{{"replicas": int64(2)}, {"replicas": int64(2)}},
		},
		"an optional struct": {
			spec: `{type: object, properties: {parts: {type: object, properties: {count: {type: integer}}}}}`,
			want: []spec{{}, {"parts": spec{}}},
		},
		"a rule that rejects the empty struct": {
			spec: `{type: object, properties: {parts: {type: object, properties: {count: {type: integer}}, ` +
				`x-kubernetes-validations: [{rule: has(self.count)}]}}}`,
			want: []spec{{}},
		},
		"a rule that needs the struct": {
			spec: `{type: object, properties: {parts: {type: object, properties: {count: {type: integer}}}}, ` +
				`x-kubernetes-validations: [{rule: has(self.parts)}]}`,
			want: []spec{{"parts": spec{}}},
		},
		"a rule that both satisfy": {
			spec: `{type: object, required: [min, max], properties: {min: {type: integer}, max: {type: integer}}, ` +
				`x-kubernetes-validations: [{rule: self.min <= self.max}]}`,
			want: []spec{{"min": int64(1), "max": int64(1)}, {"min": int64(1), "max": int64(1)}},
		},
		"a rule that nothing satisfies": {spec: `{type: object, x-kubernetes-validations: [{rule: "false"}]}`},
		"one of two fields": {
			spec: `{type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}`,
		},
		"a pattern of numbers": {
			spec: `{type: object, required: [time], properties: {time: {type: string, pattern: "^[0-9]+s$"}}}`,
			want: []spec{{"time": "1s"}, {"time": "1s"}},
		},
		"a pattern of nothing common": {
			spec: `{type: object, required: [a], properties: {a: {type: string, pattern: "^xyz-[0-9]{7}$"}}}`,
		},
		"a number or a text": {
			spec: `{type: object, required: [port], properties: {port: {x-kubernetes-int-or-string: true}}}`,
			want: []spec{{"port": "1"}, {"port": "1"}},
		},
		"another schema": {spec: `{$ref: "#/components/schemas/io.k8s.api.core.v1.PodSpec"}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.YAMLToJSON([]byte(`{type: object, required: [spec], properties: {spec: ` + tc.spec + `, metadata: {$ref: "#/m"}},
				x-kubernetes-group-version-kind: [{group: example.com, version: v1, kind: Widget}]}`))
			if err != nil {
				t.Fatal(err)
			}
			document, err := json.Marshal(map[string]any{"components": map[string]any{"schemas": map[string]any{"Widget": json.RawMessage(text)}}})
			if err != nil {
				t.Fatal(err)
			}
			d, err := ParseDocument(document)
			if err != nil {
				t.Fatal(err)
			}
			var got []spec
			for range 2 { // the second time from memory
				got = nil
				for _, object := range d.Examples(t.Context(), kind) {
					got = append(got, object["spec"].(spec))
					object["spec"] = "changed"
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
