package conversion

import "testing"

func TestJoinNotes(t *testing.T) {
	notes := []string{NoteUnchangedTemplates, NoteRatchet, "an exception is left out", noteTemplates, "text is compared"}
	want := "an exception is left out; text is compared; " + NoteRatchet + "; " + noteTemplates + "; " + NoteUnchangedTemplates
	if got := JoinNotes(notes); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
