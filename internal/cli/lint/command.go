package lint

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
)

const help = `Find what Ostiary and an API server reject or warn about when a policy is applied.

The command needs no cluster: it contains the definition of WebhookPolicy, and the resources
and schemas of the supported Kubernetes versions. Add the CustomResourceDefinitions of other
kinds to the files.

Exceptions are compared with the policies of the same files: those for a missing policy or
validation, for resources that the policy never matches, and those that have ended are warnings.

Exit status 1 means that there are errors or warnings.`

type command struct {
	*output.Options
	inputs.Flags
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:        "lint -f FILE...",
		SuggestFor: []string{"validate", "check"},
		Short:      "Find what is rejected or warned about when a policy is applied",
		Long:       help,
		Example: "  kubectl ostiary lint -f policy.yaml\n" +
			"  kubectl ostiary lint -f policy.yaml --kubernetes-version 1.35 -o sarif",
		Args: output.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	run.AddFiles(c)
	run.AddVersion(c)
	run.At.AddTime(c.Flags())
	o.AddFormat(c, output.SARIF, output.GitHub)
	return c
}

func (c *command) run(ctx context.Context) error {
	var problems []error
	skip := func(err error) { problems = append(problems, err) }
	objects, err := load.Objects(ctx, c.Files, load.Options{Stdin: c.In, AllowRemote: c.AllowRemote, Skip: skip})
	if err != nil {
		return err
	}
	findings, policies, err := Check(ctx, objects, problems, c.Kubernetes.Engine, c.At.OrNow())
	if err != nil {
		return err
	}
	findings = c.withoutRefuted(ctx, findings)
	if policies+len(findings) == 0 {
		return inputs.NoPolicyError(c.Files)
	}
	if err := c.print(findings, policies); err != nil {
		return err
	}
	return failure(findings)
}

func failure(findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	counts := map[Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
	}
	return &output.FindingsError{Text: output.Count(counts[Error], "error", "errors") + ", " + output.Count(counts[Warning], "warning", "warnings")}
}

func (c *command) print(findings []Finding, policies int) error {
	switch c.Format {
	case output.SARIF:
		c.Format = output.JSON
		return c.Print(sarifOf(findings, c.Version))
	case output.GitHub:
		return c.lines(findings, func(f Finding) string { return output.WorkflowCommand(c.Out) + githubLine(f) })
	case output.JSON, output.YAML:
		return c.Print(map[string]any{"findings": append([]Finding{}, findings...)}) // not null
	}
	if len(findings) == 0 {
		_, err := fmt.Fprintf(c.Out, "%s without findings\n", output.Count(policies, "policy", "policies"))
		return err
	}
	style := output.Colored(c.Out)
	return c.lines(findings, func(f Finding) string { return output.Wrap(c.Out, textLine(style, f)) })
}

func (c *command) lines(findings []Finding, line func(Finding) string) error {
	for _, f := range findings {
		if _, err := fmt.Fprintln(c.Out, line(f)); err != nil {
			return fmt.Errorf("writing the findings: %w", err)
		}
	}
	return nil
}

// textLine has the form of compilers, which editors read.
func textLine(style output.Style, f Finding) string {
	color := output.Yellow
	if f.Severity == Error {
		color = output.Red
	}
	position := load.Position{File: f.File, Line: f.Line, Column: f.Column}.String()
	return output.Printable(position) + ": " + output.Paint(style, color, string(f.Severity)) + ": " + output.Printable(messageOf(f))
}

// messageOf returns the message with its policy and field.
func messageOf(f Finding) string {
	text := f.Message
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Policy != "" {
		text = f.Policy + ": " + text
	}
	return text
}

// githubLine is a workflow command of GitHub Actions, without its begin.
func githubLine(f Finding) string {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	return fmt.Sprintf("%s file=%s,line=%d,col=%d,title=%s::%s", f.Severity, property.Replace(f.File), f.Line, f.Column, property.Replace("ostiary lint: "+f.Rule), data.Replace(messageOf(f)))
}
