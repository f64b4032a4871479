package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/clitest"
	"github.com/ostiary/ostiary/test/clitest/pty"
)

// onTerminal runs a command whose output and errors are on one terminal.
func onTerminal(t *testing.T, columns uint16, args ...string) (status int, text string) {
	t.Helper()
	terminal := pty.Open(t, columns, 24)
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: terminal.File, ErrOut: terminal.File}
	status = Run(t.Context(), "v1.2.3", args, streams)
	return status, terminal.Close()
}

// TestTerminal compares what users see at three widths, with and without colors. No line is wider than the terminal,
// and colors add nothing that the text does not say.
func TestTerminal(t *testing.T) {
	golden, err := filepath.Abs(filepath.Join("testdata", "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join("testdata", "examples"))
	t.Setenv("TERM", "xterm")
	tests := map[string]struct {
		args       string
		wantStatus int
	}{
		"help":          {args: "--help"},
		"help-doctor":   {args: "doctor --help"},
		"help-eval":     {args: "eval --help"},
		"error":         {args: "eval --filenam policy.yaml", wantStatus: output.StatusError},
		"eval":          {args: "eval -f ../many/policies.yaml -f ../many/objects.yaml", wantStatus: output.StatusFindings},
		"eval-summary":  {args: "eval -f ../many/policies.yaml -f ../many/objects.yaml --summary", wantStatus: output.StatusFindings},
		"eval-heat-map": {args: "eval -f ../many/policies.yaml -f ../many/objects.yaml --heat-map", wantStatus: output.StatusFindings},
		"explain":       {args: "explain -f policy.yaml --object pod.yaml require-team-label"},
		"lint":          {args: "lint -f ../many/faulty.yaml", wantStatus: output.StatusFindings},
		"test":          {args: "test ../many/tests --coverage", wantStatus: output.StatusFindings},
		"convert":       {args: "convert -f native.yaml -o NEW"},
		"replay":        {args: "replay --audit-log audit.log -f policy.yaml", wantStatus: output.StatusFindings},
		"doctor":        {args: "doctor -f dump.yaml", wantStatus: output.StatusFindings},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			plain := map[uint16]string{}
			for _, noColor := range []string{"1", ""} {
				for _, columns := range []uint16{80, 110, 160} {
					t.Setenv("NO_COLOR", noColor)
					status, text := onTerminal(t, columns, strings.Fields(strings.ReplaceAll(tt.args, "NEW", filepath.Join(t.TempDir(), "new")))...)
					if status != tt.wantStatus {
						t.Errorf("status %d, want %d\n%s", status, tt.wantStatus, text)
					}
					if noColor != "" {
						plain[columns] = text
						checkWidth(t, text, int(columns))
					} else if diff := cmp.Diff(plain[columns], pty.WithoutColors(text)); diff != "" {
						t.Errorf("%d columns: signs that only colors show (-plain +colored):\n%s", columns, diff)
					}
					fmt.Fprintf(&got, "-- %d columns, NO_COLOR=%s --\n%s", columns, noColor, pty.NameColors(text))
				}
			}
			clitest.Compare(t, filepath.Join(golden, name+".txt"), got.String())
		})
	}
	if files, _ := filepath.Glob(filepath.Join(golden, "*.txt")); len(files) != len(tests) {
		t.Errorf("%d golden files for %d tests", len(files), len(tests))
	}
}

// checkWidth fails for lines that are too long. Commands and addresses stay as they are, so that they can be copied.
func checkWidth(t *testing.T, text string, columns int) {
	t.Helper()
	if strings.Contains(text, "\x1b") {
		t.Errorf("control sequences without colors in %q", text)
	}
	for line := range strings.Lines(text) {
		text := strings.TrimSpace(line)
		isCopied := strings.HasPrefix(line, "  ") && strings.HasSuffix(text, "\\") || strings.HasPrefix(text, "kubectl ostiary ") ||
			strings.HasPrefix(text, "https://")
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > columns && !isCopied {
			t.Errorf("more than %d columns: %s", columns, line)
		}
	}
}
