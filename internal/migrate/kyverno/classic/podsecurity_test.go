package classic

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each policy that stands for a control exists in the library, and no policy of its folders
// is missing.
func TestControls(t *testing.T) {
	known := map[string]bool{}
	for _, names := range libraryControls() {
		for _, name := range names {
			known[name] = true
		}
	}
	existing := map[string]bool{}
	found, err := filepath.Glob("../../../../library/pod-security-*/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		existing[filepath.Base(filepath.Dir(path))] = true
	}
	if diff := cmp.Diff(existing, known); diff != "" {
		t.Errorf("policies of controls (-library +here):\n%s", diff)
	}
}

func TestLibraryPolicies(t *testing.T) {
	tests := map[string]struct {
		given podSecurityStandard
		want  []string
	}{
		"baseline": {
			given: podSecurityStandard{Level: "baseline", Exclude: []exclusion{{ControlName: "Capabilities"}}},
			want:  []string{"baseline-capabilities"},
		},
		"restricted": {
			given: podSecurityStandard{
				Level:   "restricted",
				Exclude: []exclusion{{ControlName: "Seccomp"}, {ControlName: "Capabilities"}, {ControlName: "Seccomp"}},
			},
			want: []string{"baseline-seccomp", "restricted-seccomp", "baseline-capabilities", "restricted-capabilities"},
		},
		"an unknown control": {
			given: podSecurityStandard{Level: "restricted", Exclude: []exclusion{{ControlName: "Luck"}}},
			want:  []string{"that for Luck"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, libraryPolicies(&tt.given)); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		})
	}
}
