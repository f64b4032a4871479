package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/nearest"
)

// setHelp sets the help of all commands, and the errors about their flags.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { _, _ = io.WriteString(c.OutOrStdout(), helpOf(c)) })
	root.SetFlagErrorFunc(flagError)
	root.SetCompletionCommandGroupID(otherCommands)
	root.SetHelpCommandGroupID(otherCommands)
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || found == root && len(rest) > 0 {
				return noCommand(root, args)
			}
			return found.Help()
		},
	})
}

// flagError says how to correct an error about a flag.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := nearest.Name(unknown.GetSpecifiedName(), func(yield func(string) bool) {
		c.Flags().VisitAll(func(f *pflag.Flag) { yield(f.Name) }) // nearest.Name looks at all of them
	})
	if name == "" {
		return fmt.Errorf("%w: %s --help lists the flags", err, c.CommandPath())
	}
	return fmt.Errorf("%w, did you mean --%s?", err, name)
}

// helpOf returns the help of a command, in the order of kubectl's. On a terminal, it has the width of that.
func helpOf(c *cobra.Command) string {
	out := c.OutOrStdout()
	var b strings.Builder
	title := func(text string) { fmt.Fprintf(&b, "\n%s\n", output.Paint(output.Colored(out), output.Bold, text+":")) }
	fmt.Fprintf(&b, "%s\n", output.WrapProse(out, strings.TrimSpace(cmp.Or(c.Long, c.Short))))
	if c.Example != "" {
		title("Examples")
		b.WriteString(c.Example + "\n")
	}
	for _, g := range c.Groups() {
		title(g.Title)
		writeCommands(&b, c, g.ID)
	}
	if len(c.Groups()) == 0 && c.HasAvailableSubCommands() {
		title("Commands")
		writeCommands(&b, c, "")
	}
	own, connection := flagsOf(c)
	for _, flags := range []struct {
		title string
		*pflag.FlagSet
	}{{"Flags", own}, {"Connection to the cluster", connection}} {
		if flags.HasAvailableFlags() {
			title(flags.title)
			b.WriteString(flags.FlagUsagesWrapped(output.Width(out)))
		}
	}
	title("Usage")
	if !c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
		return b.String()
	}
	fmt.Fprintf(&b, "  %[1]s COMMAND [flags]\n\n%[1]s COMMAND --help describes a command and its flags.\n", c.CommandPath())
	return b.String()
}

// writeCommands writes the commands of a group.
func writeCommands(b *strings.Builder, parent *cobra.Command, group string) {
	for _, c := range parent.Commands() {
		if c.GroupID == group && c.IsAvailableCommand() {
			fmt.Fprintf(b, "  %-*s  %s\n", c.NamePadding(), c.Name(), c.Short)
		}
	}
}

// flagsOf returns the flags of a command, and those for the connection to a cluster. Those with a letter come first.
func flagsOf(c *cobra.Command) (own, connection *pflag.FlagSet) {
	own, connection = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	var all []*pflag.Flag
	c.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	rank := func(f *pflag.Flag) int {
		switch {
		case f.Name == "help":
			return 2
		case f.Shorthand == "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b *pflag.Flag) int { return cmp.Compare(rank(a), rank(b)) })
	for _, f := range all {
		if f.Annotations[connect.FlagAnnotation] != nil {
			connection.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	}
	return own, connection
}
