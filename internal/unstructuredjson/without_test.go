package unstructuredjson

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeWithout(t *testing.T) {
	tests := map[string]struct {
		in      string
		want    map[string]any
		wantErr bool
	}{
		"absent":            {in: `{"metadata":{"name":"a"}}`, want: map[string]any{"metadata": map[string]any{"name": "a"}}},
		"left out":          {in: `{"metadata":{"managedFields":[{"a":[1,{}]}],"name":"a"},"x":1}`, want: map[string]any{"metadata": map[string]any{"name": "a"}, "x": int64(1)}},
		"the only member":   {in: `{"metadata":{"managedFields":null}}`, want: map[string]any{"metadata": map[string]any{}}},
		"of another parent": {in: `{"spec":{"managedFields":1},"metadata":{}}`, want: map[string]any{"spec": map[string]any{"managedFields": int64(1)}, "metadata": map[string]any{}}},
		"of the document":   {in: `{"managedFields":1}`, want: map[string]any{"managedFields": int64(1)}},
		"further down":      {in: `{"spec":{"metadata":{"managedFields":1}}}`, want: map[string]any{"spec": map[string]any{"metadata": map[string]any{"managedFields": int64(1)}}}},
		"within the parent": {in: `{"metadata":{"a":{"managedFields":1}}}`, want: map[string]any{"metadata": map[string]any{"a": map[string]any{"managedFields": int64(1)}}}},
		"in a list":         {in: `{"metadata":[{"managedFields":1}]}`, want: map[string]any{"metadata": []any{map[string]any{"managedFields": int64(1)}}}},
		"twice":             {in: `{"metadata":{"managedFields":1,"managedFields":1}}`, want: map[string]any{"metadata": map[string]any{}}},
		"of two parents":    {in: `{"metadata":{"managedFields":1,"x":1},"metadata":{"y":1,"managedFields":1}}`, want: map[string]any{"metadata": map[string]any{"y": int64(1)}}},
		"malformed":         {in: `{"metadata":{"managedFields":[}}`, wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeWithout([]byte(tc.in), "metadata", "managedFields")
			if (err != nil) != tc.wantErr {
				t.Fatalf("DecodeWithout() error = %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}
