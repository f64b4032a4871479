package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPaint(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a command":            {text: "\n$ kubectl get pods\n", want: "\n\x1b[1m$ kubectl get pods\x1b[0m\n"},
		"a denial":             {text: "Error from server (Forbidden): no\n", want: "\x1b[31mError from server (Forbidden): no\x1b[0m\n"},
		"a denial as Invalid":  {text: "The pods \"a\" is invalid: no\n", want: "\x1b[31mThe pods \"a\" is invalid: no\x1b[0m\n"},
		"a warning and an end": {text: "Warning: soon\npod/a created\n", want: "\x1b[33mWarning: soon\x1b[0m\n\x1b[32mpod/a created\x1b[0m\n"},
		"a result":             {text: "# allowed\n\n", want: "\x1b[36m# allowed\x1b[0m\n\n"},
		"a time":               {text: "[ 50.4s] Creating\n", want: "\x1b[2m[ 50.4s]\x1b[0m Creating\n"},
		"another line":         {text: "Next steps:\n", want: "Next steps:\n"},
		"no end of a line":     {text: "# a", want: "\x1b[36m# a\x1b[0m"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, string(paint([]byte(tt.text)))); diff != "" {
				t.Errorf("painted (-want +got):\n%s", diff)
			}
			var out strings.Builder
			if n, err := (painter{out: &out}).Write([]byte(tt.text)); n != len(tt.text) || err != nil || out.String() != tt.want {
				t.Errorf("wrote %q as %d bytes: %v", out.String(), n, err)
			}
		})
	}
}

func TestNoColourInFiles(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if terminal(file) != file {
		t.Error("a file gets colours")
	}
}
