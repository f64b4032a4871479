package nearest

import (
	"slices"
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	tests := map[string]struct {
		name       string
		candidates []string
		want       string
	}{
		"a letter is missing":     {name: "hostNetwrk", candidates: []string{"hostNetwork", "hostPID", "hostIPC"}, want: "hostNetwork"},
		"two letters are swapped": {name: "replicsa", candidates: []string{"replicas", "selector"}, want: "replicas"},
		"another case":            {name: "hostnetwork", candidates: []string{"hostNetwork"}, want: "hostNetwork"},
		"singular":                {name: "pod", candidates: []string{"nodes", "pods"}, want: "pods"},
		"short, another name":     {name: "pvc", candidates: []string{"pods", "jobs"}},
		"too far":                 {name: "containers", candidates: []string{"conditions"}},
		"first of equals":         {name: "aab", candidates: []string{"aad", "aac"}, want: "aac"},
		"itself":                  {name: "spec", candidates: []string{"spec"}},
		"nothing":                 {name: "", candidates: []string{"a"}},
		"no candidates":           {name: "spec"},
		"too long":                {name: strings.Repeat("a", 65), candidates: []string{strings.Repeat("a", 64)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Name(tt.name, slices.Values(tt.candidates)); got != tt.want {
				t.Errorf("Name(%q) = %q, want %q", tt.name, got, tt.want)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want int
	}{
		"equal":       {"spec", "spec", 0},
		"replaced":    {"spec", "spac", 1},
		"removed":     {"spec", "spc", 1},
		"swapped":     {"spec", "psec", 1},
		"two edits":   {"template", "tamplat", 2},
		"above limit": {"spec", "status", 5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := distance([]rune(tt.a), []rune(tt.b), 3); got != tt.want {
				t.Errorf("distance = %d, want %d", got, tt.want)
			}
		})
	}
}
