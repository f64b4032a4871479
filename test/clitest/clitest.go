// Package clitest runs commands of kubectl-ostiary in tests, and compares what they write.
package clitest

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

var update = flag.Bool("update", false, "rewrite the golden files") //nolint:gochecknoglobals // a flag of the test program

// Run runs a command with arguments, and returns what it writes and its error.
func Run(tb testing.TB, newCommand func(*output.Options) *cobra.Command, stdin string, args ...string) (out, errOut string, err error) {
	tb.Helper()
	streams, in, stdout, stderr := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	c := newCommand(&output.Options{IOStreams: streams})
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(tb.Context())
	return stdout.String(), stderr.String(), err
}

// Compare compares a text with a golden file, which the flag -update rewrites.
func Compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
