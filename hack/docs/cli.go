package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli"
)

// commandReference returns the document of the commands of kubectl-ostiary.
func commandReference() string {
	root := cli.NewCommand("", genericiooptions.NewTestIOStreamsDiscard())
	var b strings.Builder
	b.WriteString("# Commands of kubectl-ostiary\n\n<!-- Written by `make manifests` from the code: do not edit. -->\n\n")
	b.WriteString(root.Long + "\n\n[The guide](../cli/README.md) describes their use. Each command also has the flag `--help`.\n")
	for _, c := range root.Commands() {
		writeCommand(&b, c)
	}
	return b.String()
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	description := c.Long
	if description == "" {
		description = c.Short + "."
	}
	fmt.Fprintf(b, "\n## kubectl ostiary %s\n\n%s\n\n```console\n", c.Name(), description)
	for line := range strings.Lines(c.Example) {
		b.WriteString("$ " + strings.TrimSpace(line) + "\n")
	}
	fmt.Fprintf(b, "```\n\nUsage: `kubectl ostiary %s`\n\n| flag | default | meaning |\n|---|---|---|\n", c.Use)
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, quoted(defaultOf(f)), cell(text(f.Usage)))
	})
}
