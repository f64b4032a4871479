package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParseCommands: what is read from an annotation is read again from its own text.
func FuzzParseCommands(f *testing.F) {
	for _, text := range []string{"", "pause everywhere 12ab", "skip a 1, restart b 2-3", "stop a 1,complete b 2", ",,,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		commands, _ := ParseCommands(text)
		again, err := ParseCommands(FormatCommands(commands))
		if diff := cmp.Diff(commands, again); diff != "" || err != nil {
			t.Errorf("%v (-first +again):\n%s", err, diff)
		}
	})
}

// FuzzParseSketch: a sketch that can be read is sorted, bounded, and read again from its own text.
func FuzzParseSketch(f *testing.F) {
	for _, text := range []string{"", "?", Sketch{1, 2}.String()} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := ParseSketch(text)
		if !ok {
			return
		}
		for i := 1; i < len(s); i++ {
			if s[i-1] >= s[i] {
				t.Fatalf("hash %d is not greater than the one before", i)
			}
		}
		again, ok := ParseSketch(s.String())
		if diff := cmp.Diff(s, again); diff != "" || !ok || len(s) > maxKept {
			t.Errorf("%d hashes, read again: %t (-first +again):\n%s", len(s), ok, diff)
		}
	})
}
