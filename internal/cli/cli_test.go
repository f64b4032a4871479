package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// run runs a command and returns what it writes.
func run(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	status = Run(t.Context(), "v1.2.3", args, streams)
	return status, stdout.String(), stderr.String()
}

func TestStatus(t *testing.T) {
	tests := map[string]struct {
		args       []string
		want       int
		wantErrOut string
	}{
		"help":               {args: []string{"--help"}, want: output.StatusOK},
		"no command":         {want: output.StatusOK},
		"version":            {args: []string{"version", "--client"}, want: output.StatusOK},
		"an unknown command": {args: []string{"bar"}, want: output.StatusError, wantErrOut: "error: unknown command \"bar\" for \"kubectl ostiary\"\n"},
		"a typo":             {args: []string{"tset"}, want: output.StatusError, wantErrOut: "error: unknown command \"tset\" for \"kubectl ostiary\", did you mean \"test\"?\n"},
		"a file without -f":  {args: []string{"lint", "policy.yaml"}, want: output.StatusError, wantErrOut: "error: unexpected argument \"policy.yaml\": name files with -f\n"},
		"no file": {
			args: []string{"lint"}, want: output.StatusError,
			wantErrOut: "error: --filename is missing: use kubectl ostiary lint -f FILE... [flags]\n",
		},
		"an argument": {args: []string{"version", "a"}, want: output.StatusError, wantErrOut: "error: unexpected argument \"a\"\n"},
		"an unknown flag": {
			args: []string{"version", "--bar"}, want: output.StatusError,
			wantErrOut: "error: unknown flag: --bar: kubectl ostiary version --help lists the flags\n",
		},
		"a typo of a flag": {
			args: []string{"eval", "--filenam"}, want: output.StatusError,
			wantErrOut: "error: unknown flag: --filenam, did you mean --filename?\n",
		},
		"a synonym": {
			args: []string{"validate"}, want: output.StatusError,
			wantErrOut: "error: unknown command \"validate\" for \"kubectl ostiary\", did you mean \"lint\"?\n",
		},
		"help of a typo": {
			args: []string{"help", "evl"}, want: output.StatusError,
			wantErrOut: "error: unknown command \"evl\" for \"kubectl ostiary\", did you mean \"eval\"?\n",
		},
		"help of a command": {args: []string{"help", "eval"}, want: output.StatusOK},
		"an unknown format": {
			args:       []string{"version", "-o", "xml"},
			want:       output.StatusError,
			wantErrOut: "error: invalid argument \"xml\" for \"-o, --output\" flag: must be one of table, json, yaml\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := run(t, tt.args...)
			if status != tt.want {
				t.Errorf("status %d, want %d", status, tt.want)
			}
			if diff := cmp.Diff(tt.wantErrOut, errOut); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExamples runs every command of every example, in a directory with the files that
// the examples name. It has no cluster: TestCommandsWithCluster runs all examples with one.
func TestExamples(t *testing.T) {
	root := NewCommand("v1.2.3", genericiooptions.NewTestIOStreamsDiscard())
	var commands []*cobra.Command
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		commands = append(commands, c)
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(root)
	files := os.DirFS(must(filepath.Abs(filepath.Join("testdata", "examples"))))
	for _, c := range commands {
		if c == root {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			lines := exampleLines(c)
			if len(lines) == 0 {
				t.Fatal("the command has no example")
			}
			for _, line := range lines {
				directory := t.TempDir()
				if err := os.CopyFS(directory, files); err != nil {
					t.Fatal(err)
				}
				t.Chdir(directory)
				t.Setenv("KUBECONFIG", filepath.Join(directory, "none"))
				runExample(t, line)
			}
		})
	}
}

// exampleLines returns the commands in the example of a command, without comments.
func exampleLines(c *cobra.Command) (out []string) {
	for line := range strings.Lines(c.Example) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  # ")
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func runExample(t *testing.T, line string) {
	t.Helper()
	rest, ok := strings.CutPrefix(line, "kubectl ostiary ")
	if !ok {
		t.Fatalf("the example %q does not begin with kubectl ostiary", line)
	}
	status, out, errOut := run(t, strings.Fields(rest)...)
	if strings.HasPrefix(errOut, "error: reading the kubeconfig: ") {
		t.Logf("%s: needs a cluster", line)
		return
	}
	if status == output.StatusError || out == "" {
		t.Errorf("%s: status %d\n%s%s", line, status, out, errOut)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		t.Run(shell, func(t *testing.T) {
			status, out, errOut := run(t, "completion", shell)
			if status != output.StatusOK || !strings.Contains(out, "kubectl-ostiary") {
				t.Errorf("status %d\n%s%s", status, out, errOut)
			}
		})
	}
	_, out, _ := run(t, "__complete", "version", "--output", "")
	if !strings.HasPrefix(out, "table\njson\nyaml\n") {
		t.Errorf("formats are completed with %q", out)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for arguments, want := range map[string]string{
		"eval --kubernetes-version 1.3":                  "1.34\n1.35\n1.36\n1.37\n:4\n",
		"eval --as-action D":                             "Deny\nWarn\nAudit\n:4\n", // the shell chooses
		"explain -f testdata/examples/policy.yaml requ":  "require-team-label\n:4\n",
		"explain -f testdata/examples/policy.yaml other": ":4\n",
		"explain -f testdata/examples/policy.yaml pod/":  ":4\n",
		"explain requ": ":4\n",
		"explain -f testdata/examples/absent.yaml requ": ":4\n",
	} {
		if status, out, _ := run(t, append([]string{"__complete"}, strings.Fields(arguments)...)...); status != output.StatusOK || out != want {
			t.Errorf("%s is completed with %q, want %q", arguments, out, want)
		}
	}
}

func TestNoColorWithoutTerminal(t *testing.T) {
	if output.Colored(&bytes.Buffer{}) != (output.Style{}) {
		t.Error("colors for a file")
	}
}
