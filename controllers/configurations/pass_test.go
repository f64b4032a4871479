package configurations

import (
	"errors"
	"testing"

	"github.com/ostiary/ostiary/internal/registration"
)

func newConfiguration(name, members string) registration.Configuration {
	config := registration.NewConfiguration(registration.PhaseValidate)
	config.SetName(name)
	config.SetAnnotations(map[string]string{registration.AnnotationMembers: members})
	return config
}

// A policy is not removed from one configuration before it is in the other.
func TestPostponedAdditionsBlockRemovals(t *testing.T) {
	tests := map[string]struct {
		postponed registration.Configuration
		wantOld   bool // the old configuration may be written without b, or deleted
	}{
		"nothing is postponed":             {wantOld: true},
		"the new one of b is postponed":    {postponed: newConfiguration("new", "b")},
		"an unrelated one is postponed":    {postponed: newConfiguration("new", "c"), wantOld: true},
		"the new one of both is postponed": {postponed: newConfiguration("new", "a,b")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, rejected := range []bool{false, true} {
				p := newPass([]registration.Configuration{newConfiguration("old", "a,b")})
				switch {
				case tt.postponed != nil && rejected:
					p.reject(tt.postponed, errors.New("no"))
				case tt.postponed != nil:
					p.postpone(tt.postponed)
				}
				if got := !p.wouldDrop(newConfiguration("old", "a")); got != tt.wantOld {
					t.Errorf("old may lose b: %t, want %t", got, tt.wantOld)
				}
				if got := !p.wouldDropAny(registration.Ref{Key: registration.Key{Phase: registration.PhaseValidate, Name: "old"}}); got != tt.wantOld {
					t.Errorf("old may be deleted: %t, want %t", got, tt.wantOld)
				}
				if p.wouldDrop(newConfiguration("old", "a,b,c")) || p.wouldDrop(newConfiguration("other", "a")) {
					t.Error("a write that removes no member has to wait")
				}
			}
		})
	}
}
