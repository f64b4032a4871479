package truncate

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestString(t *testing.T) {
	tests := map[string]struct {
		in    string
		limit int
		want  string
	}{
		"short":          {"abc", 3, "abc"},
		"one too long":   {"abcdef", 5, "ab..."},
		"two-byte rune":  {"aéée", 5, "a..."},
		"four-byte rune": {"ab😀cdef", 8, "ab..."},
		"rune fits":      {"ab😀cdef", 9, "ab😀..."},
		"empty":          {"", 3, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := String(tc.in, tc.limit); got != tc.want || len(got) > tc.limit {
				t.Errorf("Of(%q, %d) = %q, want %q", tc.in, tc.limit, got, tc.want)
			}
		})
	}
	mixed := strings.Repeat("aé€😀", 20)
	for limit := 3; limit <= len(mixed); limit++ {
		if got := String(mixed, limit); !utf8.ValidString(got) || len(got) > limit {
			t.Errorf("Of(…, %d) = %q, %d bytes", limit, got, len(got))
		}
	}
}
