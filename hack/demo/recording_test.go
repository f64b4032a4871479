package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readRecording returns the header of a recording, and what its events print, without colours.
func readRecording(t *testing.T, path string) (header, string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var h header
	if err := decoder.Decode(&h); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	last := 0.0
	for decoder.More() {
		var event []any
		if err := decoder.Decode(&event); err != nil {
			t.Fatal(err)
		}
		at, ok := event[0].(float64)
		if !ok || at < last || event[1] != "o" {
			t.Fatalf("the event %v follows one at %f", event, last)
		}
		last = at
		printed.WriteString(event[2].(string))
	}
	escapes := regexp.MustCompile("\x1b\\[[0-9]+m")
	return h, strings.ReplaceAll(escapes.ReplaceAllString(printed.String(), ""), "\r\n", "\n")
}

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.cast")
	errStep := errors.New("a step failed")
	var out strings.Builder
	err := record(path, &out, func(w io.Writer) error {
		fmt.Fprintf(w, "one\n\n")
		fmt.Fprintf(w, "<two>\n")
		return errStep
	})
	if !errors.Is(err, errStep) {
		t.Errorf("error %v, want that of the function", err)
	}
	h, printed := readRecording(t, path)
	if want := (header{Version: 2, Width: 120, Height: 32, Title: "make demo"}); h != want {
		t.Errorf("header %+v, want %+v", h, want)
	}
	if want := "one\n\n<two>\n"; printed != want || out.String() != want {
		t.Errorf("recorded %q and printed %q, want %q", printed, out.String(), want)
	}
	if err := record(t.TempDir(), io.Discard, func(io.Writer) error { return nil }); err == nil {
		t.Error("no error for a folder")
	}
}

// TestRecordingIsCurrent compares the recording in the documents with the demo: each step
// appears with its command and result, in order.
func TestRecordingIsCurrent(t *testing.T) {
	_, rest := readRecording(t, filepath.Join("..", "..", "docs", "images", "demo.cast"))
	var want []string
	for _, s := range steps() {
		want = append(want, s.title, "$ "+commandLine(s.args)+"\n", "# "+s.result+"\n")
	}
	want = append(want, nextSteps)
	for _, part := range want {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("the recording does not continue with this text: run make demo-cast\n%s", cmp.Diff(part, rest))
		}
		rest = after
	}
}
