// Package cli is kubectl-ostiary.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/convert"
	doctor "github.com/ostiary/ostiary/internal/cli/doctor/command"
	"github.com/ostiary/ostiary/internal/cli/evaluate"
	"github.com/ostiary/ostiary/internal/cli/exempt"
	"github.com/ostiary/ostiary/internal/cli/explain"
	"github.com/ostiary/ostiary/internal/cli/lint"
	"github.com/ostiary/ostiary/internal/cli/mutate"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/policytest"
	replay "github.com/ostiary/ostiary/internal/cli/replay/command"
	"github.com/ostiary/ostiary/internal/cli/rollout"
	"github.com/ostiary/ostiary/internal/cli/status"
	"github.com/ostiary/ostiary/internal/cli/suspend"
	"github.com/ostiary/ostiary/internal/cli/version"
	"github.com/ostiary/ostiary/internal/cli/violations"
)

// Run runs a command and returns its exit status. The result is on stdout, everything
// else on stderr. Both are sanitized: see output.Writer.
func Run(ctx context.Context, programVersion string, args []string, streams genericiooptions.IOStreams) int {
	out, errOut := output.NewWriter(streams.Out), output.NewWriter(streams.ErrOut)
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		output.EscapeCommands(out)
		output.EscapeCommands(errOut)
	}
	streams.Out, streams.ErrOut = out, errOut
	status := execute(ctx, programVersion, args, streams)
	if err := errors.Join(out.Flush(), errOut.Flush()); err != nil {
		return output.StatusError
	}
	return status
}

func execute(ctx context.Context, programVersion string, args []string, streams genericiooptions.IOStreams) int {
	root := NewCommand(programVersion, streams)
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the program
	err := root.ExecuteContext(ctx)
	var findings *output.FindingsError
	switch {
	case err == nil:
	case errors.As(err, &findings):
		if findings.Text != "" {
			text := output.Paint(output.Colored(streams.ErrOut), output.Bold, findings.Text)
			_, _ = fmt.Fprintln(streams.ErrOut, output.Wrap(streams.ErrOut, text))
		}
	default:
		text := output.Paint(output.Colored(streams.ErrOut), output.Red, "error:") + " " + strings.TrimSpace(err.Error())
		_, _ = fmt.Fprintln(streams.ErrOut, output.Wrap(streams.ErrOut, text))
	}
	return output.Status(err)
}

// NewCommand returns the command with all of its subcommands.
func NewCommand(programVersion string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-ostiary",
		Short:         "Test, evaluate and explain WebhookPolicies without a cluster",
		Long:          "Test, evaluate and explain WebhookPolicies without a cluster.\n\nExit status: 0 success, 1 findings, 2 a usage or input error.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl ostiary"},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	for _, g := range groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, add := range g.commands {
			c := add(&output.Options{IOStreams: streams, Version: programVersion})
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	setHelp(root)
	return root
}

// noCommand rejects an argument that is no command, and suggests one.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = fmt.Sprintf(", did you mean %q?", similar[0])
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
}

// group is a group of commands in the help.
type group struct {
	title    string
	commands []func(*output.Options) *cobra.Command
}

const otherCommands = "Other commands"

// groups returns the constructors of all commands, by their group. This is the only list of them.
func groups() []group {
	type commands = []func(*output.Options) *cobra.Command
	return []group{
		{"Write and test policies, without a cluster", commands{lint.NewCommand, policytest.NewCommand, evaluate.NewCommand, explain.NewCommand}},
		{"Look at a cluster", commands{status.NewCommand, violations.NewCommand, doctor.NewCommand}},
		{"Migrate and roll out policies", commands{convert.NewCommand, replay.NewCommand, rollout.NewCommand, mutate.NewCommand}},
		{"Let requests pass", commands{exempt.NewCommand, exempt.NewBaselineCommand, suspend.NewCommand, suspend.NewResumeCommand}},
		{otherCommands, commands{version.NewCommand}},
	}
}
