package unstructuredjson

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeParts(t *testing.T) {
	const document = `{"kind":"Pod","metadata":{"name":"a","managedFields":[{"a":[1,{}]}],"labels":{"x":"y"}},"spec":{"a":{"b":1,"c":2},"d":[{"b":3}]}}`
	unmanaged := Without("metadata", "managedFields")
	tests := map[string]struct {
		in      string
		parts   Selection
		want    map[string]any
		wantErr bool
	}{
		"nothing":  {in: document, want: map[string]any{}},
		"a member": {in: document, parts: Path("kind"), want: map[string]any{"kind": "Pod"}},
		"a nested member": {
			in:    document,
			parts: Path("spec", "a", "b"),
			want:  map[string]any{"spec": map[string]any{"a": map[string]any{"b": int64(1)}}},
		},
		"two paths": {
			in:    document,
			parts: Path("spec", "a", "c").Union(Path("metadata", "name")),
			want: map[string]any{
				"metadata": map[string]any{"name": "a"},
				"spec":     map[string]any{"a": map[string]any{"c": int64(2)}},
			},
		},
		"a whole object": {
			in:    document,
			parts: Path("spec", "a"),
			want:  map[string]any{"spec": map[string]any{"a": map[string]any{"b": int64(1), "c": int64(2)}}},
		},
		"absent": {in: document, parts: Path("spec", "z", "b"), want: map[string]any{"spec": map[string]any{}}},
		"members of a list": {
			in:    document,
			parts: Path("spec", "d", "b"),
			want:  map[string]any{"spec": map[string]any{"d": []any{map[string]any{"b": int64(3)}}}},
		},
		"elements": {
			in:    document,
			parts: Elements(Path("b")).At("spec", "d"),
			want:  map[string]any{"spec": map[string]any{"d": []any{map[string]any{"b": int64(3)}}}},
		},
		"other elements": {
			in:    document,
			parts: Elements(Path("c")).At("spec", "d"),
			want:  map[string]any{"spec": map[string]any{"d": []any{map[string]any{}}}},
		},
		"nothing of elements": {
			in:    `{"a":[{"b":1},"c",[{"d":1}]]}`,
			parts: Elements(Selection{}).At("a"),
			want:  map[string]any{"a": []any{map[string]any{}, "c", []any{map[string]any{"d": int64(1)}}}},
		},
		"elements of an object": {
			in:    document,
			parts: Elements(Path("z")).At("spec", "a"),
			want:  map[string]any{"spec": map[string]any{"a": map[string]any{"b": int64(1), "c": int64(2)}}},
		},
		"elements of a string": {in: document, parts: Elements(Path("z")).At("kind"), want: map[string]any{"kind": "Pod"}},
		"elements of elements": {
			in:    `{"a":[[{"b":1,"c":2}]]}`,
			parts: Elements(Elements(Path("c"))).At("a"),
			want:  map[string]any{"a": []any{[]any{map[string]any{"c": int64(2)}}}},
		},
		"members of a string": {in: document, parts: Path("kind", "b"), want: map[string]any{"kind": "Pod"}},
		"members of null":     {in: `{"a":null}`, parts: Path("a", "b"), want: map[string]any{"a": nil}},
		"duplicates, last": {
			in:    `{"a":{"b":1},"a":{"c":2}}`,
			parts: Path("a", "b"),
			want:  map[string]any{"a": map[string]any{}},
		},
		"duplicates, not object": {
			in:    `{"a":{"b":1},"a":[2]}`,
			parts: Path("a", "b"),
			want:  map[string]any{"a": []any{int64(2)}},
		},
		"an escaped name": {
			in:    `{"\u0061":{"\u0062":1,"c":2}}`,
			parts: Path("a", "b"),
			want:  map[string]any{"a": map[string]any{"b": int64(1)}},
		},
		"malformed in what is not": {in: `{"a":1,"b":[}`, parts: Path("a"), wantErr: true},
		"too large in what is not": {in: `{"a":1,"b":1e400}`, parts: Path("a"), want: map[string]any{"a": int64(1)}},
		"too large":                {in: `{"a":1,"b":1e400}`, parts: Path("b"), wantErr: true},

		"without, absent": {
			in:    `{"metadata":{"name":"a"}}`,
			parts: unmanaged,
			want:  map[string]any{"metadata": map[string]any{"name": "a"}},
		},
		"without": {
			in:    `{"metadata":{"managedFields":[{"a":[1,{}]}],"name":"a"},"x":1}`,
			parts: unmanaged,
			want:  map[string]any{"metadata": map[string]any{"name": "a"}, "x": int64(1)},
		},
		"without the only member": {
			in:    `{"metadata":{"managedFields":null}}`,
			parts: unmanaged,
			want:  map[string]any{"metadata": map[string]any{}},
		},
		"without, of another parent": {
			in:    `{"spec":{"managedFields":1},"metadata":{}}`,
			parts: unmanaged,
			want:  map[string]any{"spec": map[string]any{"managedFields": int64(1)}, "metadata": map[string]any{}},
		},
		"without, of the document": {
			in:    `{"managedFields":1}`,
			parts: unmanaged,
			want:  map[string]any{"managedFields": int64(1)},
		},
		"without, further down": {
			in:    `{"metadata":{"a":{"managedFields":1}}}`,
			parts: unmanaged,
			want:  map[string]any{"metadata": map[string]any{"a": map[string]any{"managedFields": int64(1)}}},
		},
		"without, in a list": {
			in:    `{"metadata":[{"managedFields":1}]}`,
			parts: unmanaged,
			want:  map[string]any{"metadata": []any{map[string]any{"managedFields": int64(1)}}},
		},
		"without, twice": {
			in:    `{"metadata":{"managedFields":1,"managedFields":1}}`,
			parts: unmanaged,
			want:  map[string]any{"metadata": map[string]any{}},
		},
		"without, malformed": {in: `{"metadata":{"managedFields":[}}`, parts: unmanaged, wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeParts([]byte(tc.in), tc.parts)
			if (err != nil) != tc.wantErr {
				t.Fatalf("DecodeParts() error = %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnion(t *testing.T) {
	a, b, ab := Path("a"), Path("b"), Selection{members: []selectedMember{{"a", Everything()}, {"b", Everything()}}}
	without := Without("a", "b")
	tests := map[string]struct{ one, other, want Selection }{
		"nothing":                {one: Selection{}, other: Selection{}, want: Selection{}},
		"with nothing":           {one: a, other: Selection{}, want: a},
		"two members":            {one: a, other: b, want: ab},
		"one includes the other": {one: ab, other: b, want: ab},
		"a parent":               {one: Path("a", "b"), other: a, want: a},
		"everything":             {one: a, other: Everything(), want: Everything()},
		"siblings": {
			one:   Path("a", "b"),
			other: Path("a", "c"),
			want: Selection{
				members: []selectedMember{{"a", Selection{members: []selectedMember{{"b", Everything()}, {"c", Everything()}}}}},
			},
		},
		"what is left out": {
			one:   without,
			other: Path("a", "b"),
			want: Selection{
				rest:    true,
				members: []selectedMember{{"a", Selection{rest: true, members: []selectedMember{{"b", Everything()}}}}},
			},
		},
		"what is not left out": {one: without, other: Path("a", "c"), want: without},
		"a part of the left out": {
			one:   without,
			other: Path("a", "b", "c"),
			want: Selection{
				rest:    true,
				members: []selectedMember{{"a", Selection{rest: true, members: []selectedMember{{"b", Path("c")}}}}},
			},
		},
		"left out of both":      {one: without, other: Without("a", "b"), want: without},
		"elements":              {one: Elements(a), other: Elements(b), want: Elements(ab)},
		"elements and nothing":  {one: Elements(a), other: Selection{}, want: Elements(a)},
		"elements and all":      {one: Elements(a), other: Everything(), want: Everything()},
		"elements and members":  {one: Elements(a), other: a, want: Everything()},
		"elements and the rest": {one: Elements(a), other: without, want: Everything()},
		"left out of one":       {one: without, other: Everything(), want: Everything()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, got := range []Selection{tc.one.Union(tc.other), tc.other.Union(tc.one)} {
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Selection{}, selectedMember{})); diff != "" {
					t.Errorf("Union() (-want +got):\n%s", diff)
				}
				if !got.Covers(tc.one) || !got.Covers(tc.other) {
					t.Errorf("%+v covers not both", got)
				}
			}
		})
	}
}
