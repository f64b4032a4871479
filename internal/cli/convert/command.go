// Package convert is the command convert, which writes policies of other projects as
// WebhookPolicies.
package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/verify"
)

// helpDescription returns the description of the command.
func helpDescription() string {
	titles := make([]string, 0, len(migrate.Sources()))
	for _, s := range migrate.Sources() {
		titles = append(titles, "- "+s.Title)
	}
	return fmt.Sprintf(helpText, strings.Join(titles, "\n"))
}

const helpText = `Write policies of other projects as WebhookPolicies.

Sources are:

%s

With --to native, WebhookPolicies become native policies.

Without -o, the policies are on stdout and the report is on stderr. With -o, the command
writes one file for each object to a new directory, all of them or none, and the report to
stdout. The report has a line for each rule: converted; changed, and how; or left out, why,
and what to do instead.

The bindings of policies get the action Audit, so that they deny nothing while the former
policies still exist. With --actions keep they get the actions of their source.

With --verify, the tests among the files (kind Test of Kyverno, kind Suite of gator) run on the
results. With -o, they are also written as PolicyTests to the directory "tests". With
--verify-objects, the command compares the decisions of sources in CEL with those of their
results, for the objects of other files. With --inventory, the command counts the objects that
convert, by kind, and marks the kinds that Kyverno 1.20 does not execute.

A file, an object or a chart that cannot be read is listed, and the rest converts. Exit status 1
means that a rule or an object is left out, that an assertion of a test fails, or that two
decisions differ. Exit status 2 means that a part of the input cannot be read, or that nothing is
written because the arguments are invalid or the input has no policy.`

// maxFile is the maximum of bytes of a file of a directory. API servers store at most 1.5 MiB for
// each policy.
const maxFile = 8 << 20

type convertCommand struct {
	*output.Options

	options     conversion.Options
	files       []string
	fromCluster bool
	connection  *connect.Flags
	directory   string
	report      output.Format
	actions     string
	to          string
	verify      bool
	objects     []string
	inventory   bool
}

// Values of flags.
const (
	actionsAudit, actionsKeep = "audit", "keep"
	toOstiary, toNative       = "ostiary", "native"
)

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &convertCommand{Options: o}
	c := &cobra.Command{
		Use:        "convert {-f FILE... | --from-cluster}",
		SuggestFor: []string{"migrate", "import"},
		Short:      "Write policies of other projects as WebhookPolicies",
		Long:       helpDescription(),
		Example: "  kubectl ostiary convert -f native.yaml -o converted\n" +
			"  kubectl ostiary convert -f native.yaml --inventory\n" +
			"  kubectl ostiary convert -f policy.yaml --to native",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	f := c.Flags()
	f.StringSliceVarP(
		&run.files,
		"filename",
		"f",
		nil,
		"files, directories, kustomizations or Helm charts with policies; - is stdin",
	)
	f.BoolVar(&run.fromCluster, "from-cluster", false, "read the policies of the cluster of the current context")
	f.StringVarP(&run.directory, "output", "o", "", "new directory for the results; default is stdout")
	run.actions = actionsAudit
	run.to = toOstiary
	run.report = output.Table
	f.Var(
		&choiceFlag[string]{&run.actions, []string{actionsAudit, actionsKeep}},
		"actions",
		"actions of bindings: audit for Audit, or keep for those of the source",
	)
	run.options.Params = conversion.ParamsConstants
	f.Var(
		&choiceFlag[conversion.Params]{
			&run.options.Params,
			[]conversion.Params{conversion.ParamsConstants, conversion.ParamsObject},
		},
		"params",
		"parameters of Gatekeeper's constraints: constants writes them into the policies; with object, the policies "+
			"read the constraint as params",
	)
	f.Var(&choiceFlag[string]{&run.to, []string{toOstiary, toNative}}, "to", "kind of the results: ostiary or native")
	f.Var(
		&choiceFlag[output.Format]{&run.report, []output.Format{output.Table, output.JSON, output.YAML}},
		"report",
		"format of the report: table, json or yaml",
	)
	f.BoolVar(&run.verify, "verify", false, "run the tests of Kyverno and gator among the files on the results")
	f.StringSliceVar(
		&run.objects,
		"verify-objects",
		nil,
		"files with objects for which the decisions of sources in CEL and of their results are compared",
	)
	f.BoolVar(&run.inventory, "inventory", false, "count the objects that convert, by kind, and write no policies")
	c.MarkFlagsMutuallyExclusive("inventory", "output")
	c.MarkFlagsMutuallyExclusive("inventory", "verify")
	c.MarkFlagsMutuallyExclusive("inventory", "verify-objects")
	c.MarkFlagsOneRequired("filename", "from-cluster")
	c.MarkFlagsMutuallyExclusive("filename", "from-cluster")
	run.connection = connect.AddFlags(f)
	return c
}

// choiceFlag is a flag with some values.
type choiceFlag[T ~string] struct {
	value   *T
	allowed []T
}

// String implements pflag.Value.
func (c *choiceFlag[T]) String() string {
	if c.value == nil {
		return ""
	}
	return string(*c.value)
}

// Type implements pflag.Value.
func (c *choiceFlag[T]) Type() string { return "name" }

// Set implements pflag.Value.
func (c *choiceFlag[T]) Set(text string) error {
	for _, allowed := range c.allowed {
		if string(allowed) == text {
			*c.value = allowed
			return nil
		}
	}
	return fmt.Errorf("must be one of %v", c.allowed)
}

func (c *convertCommand) run(ctx context.Context) error {
	skipped := output.NewSkipped(c.ErrOut)
	objects, err := c.load(ctx, skipped)
	if err != nil {
		return err
	}
	objects = readableDefinitions(objects, skipped.Add)
	sources := migrate.Sources()
	if c.to == toNative {
		sources = migrate.ToNative()
	}
	converted, err := migrate.Convert(sources, objects, c.options, time.Now())
	if err != nil {
		return err
	}
	if len(converted.Conversions) == 0 {
		return skipped.Instead(errors.New("the input has no policy that this command converts: name its file with -f"))
	}
	skipped.Write()
	result := &result{Result: converted, skipped: skipped.Problems()}
	if !c.verify { // tests read other objects
		result.others = othersOf(objects, sources)
	}
	written, err := result.check(ctx)
	if err != nil {
		return err
	}
	result.NoteUnaudited()
	result.AddPermissions(objects)
	if c.inventory {
		return skipped.Result(c.printInventory(c.Out, result))
	}
	if err := result.rehearse(ctx, written, objects); err != nil {
		return err
	}
	if err := c.compare(ctx, objects, result); err != nil { // with the actions of the sources
		return err
	}
	if c.actions == actionsAudit {
		result.audited = result.ReplaceActions()
	}
	if c.verify {
		if result.verified, err = newVerifier().Tests(ctx, objects, result.Conversions); err != nil {
			return err
		}
	}
	return skipped.Result(c.write(result))
}

// compare compares decisions about the objects of --verify-objects.
func (c *convertCommand) compare(ctx context.Context, input []load.Object, r *result) error {
	switch {
	case len(c.objects) == 0:
		return nil
	case c.to == toNative:
		return errors.New("--verify-objects compares native policies with WebhookPolicies: remove --to native")
	}
	objects, err := load.Objects(ctx, c.objects, load.Options{Stdin: c.In})
	if err != nil {
		return err
	}
	r.compared, err = newVerifier().Objects(ctx, input, objects, r.Conversions)
	return err
}

func (c *convertCommand) load(ctx context.Context, skipped *output.Skipped) ([]load.Object, error) {
	if !c.fromCluster {
		return c.read(ctx, skipped)
	}
	config, err := c.connection.Config()
	if err != nil {
		return nil, err
	}
	return fetchObjects(
		ctx,
		config,
		migrate.Sources(),
		func(err error) { _, _ = fmt.Fprintln(c.ErrOut, "skipping:", err) },
	)
}

// read reads the files. With tests, it also reads the files of the tests and the policies
// that they name.
func (c *convertCommand) read(ctx context.Context, skipped *output.Skipped) ([]load.Object, error) {
	options := load.Options{Stdin: c.In, MaxFile: maxFile, Skip: skipped.Add}
	options.Untyped = func(at load.Position, raw []byte) []byte {
		if typed := verify.Typed(at, raw); c.verify && typed != nil {
			return typed
		}
		if at.File == "stdin" || slices.Contains(c.files, at.File) {
			return raw // an error
		}
		_, _ = fmt.Fprintf(c.ErrOut, "skipping %s: it has neither apiVersion nor kind\n", at)
		return nil
	}
	if !c.verify {
		return load.Objects(ctx, c.files, options)
	}
	options.Plain = hasTests
	objects, err := load.Objects(ctx, c.files, options)
	if err != nil {
		return nil, err
	}
	return append(objects, newVerifier().References(ctx, objects)...), nil
}
