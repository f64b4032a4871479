// Package command is the command doctor.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
)

const help = `Find faults of the webhook configurations of a cluster, those of other operators included.

Without -f, the command reads the cluster of the current context. With -f, it reads a dump of
one: files with its objects, such as dump.yaml of

  kubectl get namespaces,services,endpointslices,deployments,statefulsets,daemonsets,leases,\
    validatingwebhookconfigurations,mutatingwebhookconfigurations -A \
    --show-managed-fields -o yaml > dump.yaml

A check that needs a kind that the dump does not contain finds nothing. Exit status 1 means
that there are errors or warnings. docs/cli/doctor.md explains each check.`

const example = `  kubectl ostiary doctor
  kubectl ostiary doctor --probe
  kubectl ostiary doctor -f dump.yaml
  kubectl ostiary doctor -f dump.yaml --kubernetes-version 1.37 -o json`

type options struct {
	*output.Options
	connection *connect.Flags
	files      []string
	version    string
	probe      bool
}

// NewCommand returns the command.
func NewCommand(shared *output.Options) *cobra.Command {
	o := &options{Options: shared}
	c := &cobra.Command{
		Use:        "doctor",
		SuggestFor: []string{"diagnose"},
		Short:      "Find faults of the webhook configurations of a cluster",
		Long:       help,
		Example:    example,
		Args:       output.NoArgs,
		RunE:       func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "a file or directory with the objects of a cluster, - for stdin; can be repeated")
	flags.StringVar(&o.version, "kubernetes-version", "", "the version of the API servers of a dump, such as 1.36")
	inputs.CompleteVersions(c)
	flags.BoolVar(&o.probe, "probe", false, "perform a TLS handshake with a Pod of each webhook, through a port-forward")
	c.MarkFlagsMutuallyExclusive("filename", "probe")
	o.connection = connect.AddFlags(flags)
	o.AddFormat(c)
	return c
}

func (o *options) run(ctx context.Context) error {
	progress := o.StartProgress("reading the webhook configurations")
	defer progress.Stop()
	skipped := output.NewSkipped(progress)
	dump, err := o.dump(ctx, progress, skipped)
	if err != nil {
		return err
	}
	findings := doctor.Check(dump, time.Now())
	progress.Stop()
	if o.Format == output.Table {
		err = writeFindings(o.Out, output.Colored(o.Out), findings)
	} else {
		err = o.Print(result{Findings: append([]doctor.Finding{}, findings...)}) // not null
	}
	if err != nil {
		return err
	}
	return skipped.Result(failure(findings))
}

// result is the result in JSON and YAML.
type result struct {
	Findings []doctor.Finding `json:"findings"`
}

// failure returns an error for the exit status if there are errors or warnings.
func failure(findings []doctor.Finding) error {
	counts := map[doctor.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
	}
	if counts[doctor.Error]+counts[doctor.Warning] == 0 {
		return nil
	}
	return &output.FindingsError{Text: output.Count(counts[doctor.Error], "error", "errors") + ", " + output.Count(counts[doctor.Warning], "warning", "warnings")}
}

func (o *options) dump(ctx context.Context, progress *output.Progress, skipped *output.Skipped) (*doctor.Dump, error) {
	if len(o.files) > 0 {
		return o.read(ctx, skipped)
	}
	if o.version != "" {
		return nil, errors.New("--kubernetes-version needs -f: the API server reports its own version")
	}
	config, err := o.connection.Config()
	if err != nil {
		return nil, err
	}
	dump, err := cluster.Fetch(ctx, config, func(err error) { _, _ = fmt.Fprintln(progress, "skipping checks:", err) })
	if err == nil && o.probe {
		progress.Begin("probing the servers of webhooks", int64(len(dump.Targets())))
		cluster.Probe(ctx, config, dump, func() { progress.Add(1) })
	}
	return dump, err
}

// read reads a dump from files.
func (o *options) read(ctx context.Context, skipped *output.Skipped) (*doctor.Dump, error) {
	var v *version.Version
	if o.version != "" {
		var err error
		if v, err = version.ParseGeneric(o.version); err != nil {
			return nil, fmt.Errorf("--kubernetes-version: %w", err)
		}
	}
	dump, err := cluster.Read(ctx, o.files, o.In, skipped.Add)
	if err != nil {
		return nil, err
	}
	if len(dump.Validating)+len(dump.Mutating) == 0 {
		return nil, skipped.Instead(errors.New("the dump contains no webhook configuration"))
	}
	skipped.Write()
	dump.Version = v
	return dump, nil
}

// writeFindings writes findings for people: each in a paragraph.
func writeFindings(w io.Writer, style output.Style, findings []doctor.Finding) error {
	if len(findings) == 0 {
		_, err := fmt.Fprintln(w, "No findings")
		return err
	}
	for i, f := range findings {
		if i > 0 {
			_, _ = fmt.Fprintln(w) // the next line returns the error
		}
		where := f.Object.String()
		if f.Path != "" {
			where += " " + f.Path
		}
		text := fmt.Sprintf("%s %s %s\n  %s\n  Fix: %s\n  %s\n", output.Paint(style, colorOf(f.Severity), string(f.Severity)), f.Check,
			output.Printable(where), output.Printable(f.Message), output.Printable(f.Fix), f.Link)
		if _, err := io.WriteString(w, output.Wrap(w, text)); err != nil {
			return fmt.Errorf("writing the findings: %w", err)
		}
	}
	return nil
}

func colorOf(s doctor.Severity) output.Color {
	switch s {
	case doctor.Error:
		return output.Red
	case doctor.Warning:
		return output.Yellow
	}
	return output.Faint
}
