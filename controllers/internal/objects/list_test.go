package objects

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTooLarge(t *testing.T) {
	body := `{"metadata":{},"items":[{"metadata":{"name":"` + strings.Repeat("x", 2*maxObject) + `"}}]}`
	if _, err := decodeList(strings.NewReader(body), func([]byte) error { return nil }); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an object of more than 8 MiB: %v", err)
	}
}

func TestDecodeList(t *testing.T) {
	tests := map[string]struct {
		body, wantErr string
		want          []string
	}{
		"no items": {body: `{"metadata":{"continue":"c"}}`},
		"null":     {body: `{"items":null,"metadata":{"continue":"c"}}`},
		"items": {
			body: `{"kind":"L","items":[{"a":1},{"b":[2]}],"metadata":{"continue":"c"}}`,
			want: []string{`{"a":1}`, `{"b":[2]}`},
		},
		"cut off":            {body: `{"items":[{"a":1},{"b`, wantErr: "unexpected EOF", want: []string{`{"a":1}`}},
		"no object":          {body: `[]`, wantErr: "instead of"},
		"items is an object": {body: `{"items":{}}`, wantErr: "instead of a list"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			list, err := decodeList(strings.NewReader(tc.body), func(raw []byte) error { got = append(got, string(raw)); return nil })
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
			if err == nil && list.Continue != "c" {
				t.Errorf("metadata %+v", list)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
