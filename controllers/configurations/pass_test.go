package configurations

import (
	"errors"
	"testing"

	"github.com/ostiary/ostiary/internal/registration"
)

func carrying(name, members string) registration.Configuration {
	config := registration.NewConfiguration(registration.PhaseValidate)
	config.SetName(name)
	config.SetAnnotations(map[string]string{registration.AnnotationMembers: members})
	return config
}

// A policy is not taken out of one configuration before it is in the other.
func TestWhatIsLeftUndoneHoldsTheRest(t *testing.T) {
	tests := map[string]struct {
		undone  registration.Configuration
		wantOld bool // the old configuration may be written without b, or deleted
	}{
		"nothing is undone":              {wantOld: true},
		"where b goes is undone":         {undone: carrying("new", "b")},
		"where somebody goes is undone":  {undone: carrying("new", "c"), wantOld: true},
		"where all of them go is undone": {undone: carrying("new", "a,b")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, refused := range []bool{false, true} {
				p := newPass([]registration.Configuration{carrying("old", "a,b")})
				switch {
				case tt.undone != nil && refused:
					p.refuse(tt.undone, errors.New("no"))
				case tt.undone != nil:
					p.leave(tt.undone)
				}
				if got := !p.frees(carrying("old", "a")); got != tt.wantOld {
					t.Errorf("old may lose b: %t, want %t", got, tt.wantOld)
				}
				if got := !p.freesAll(registration.Ref{Phase: registration.PhaseValidate, Name: "old"}); got != tt.wantOld {
					t.Errorf("old may be deleted: %t, want %t", got, tt.wantOld)
				}
				if p.frees(carrying("old", "a,b,c")) || p.frees(carrying("other", "a")) {
					t.Error("what loses nobody has to wait")
				}
			}
		})
	}
}
