package violations

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
)

const help = `Show the stored objects that violate policies, by policy, namespace and owner.

The violations are from the reports of Ostiary, if the cluster has them and you may read them.
Otherwise, or with --scan or -f, the command lists the objects that you may read and evaluates the
policies of the cluster on your machine, as Ostiary's audit does. The first line says which of both,
and how old the reports are. What you may not read, and what policies are not evaluated, follows the
table.

The owner is the controller of an object, such as ReplicaSet/web-7d9; without one, it is the object.
OBJECTS fail a validation as they are. Those in ON-CREATE fail only if they are created again, for
example by a rollout. Messages hold no values of objects.

Exit status 1 means that there are violations, and 2 that something could not be read. With --watch,
Ctrl-C ends the command with exit status 0.`

const (
	minInterval = time.Second
	// minScanInterval is the minimum time between two scans, each of which lists everything.
	minScanInterval = 30 * time.Second
	// completionTimeout is how long a shell waits for the cluster.
	completionTimeout = 5 * time.Second
)

type command struct {
	*output.Options
	inputs.Flags

	policies []string
	scan     bool
	watch    bool
	interval time.Duration

	found func(audit.Resource, *unstructured.Unstructured, audit.Result) error // nil is allowed
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "violations [--policy POLICY]... [-f FILE...]",
		Short: "Show the stored objects that violate policies",
		Long:  help,
		Example: "  kubectl ostiary violations\n" +
			"  kubectl ostiary violations -n shop --policy require-team-label",
		Args: output.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&run.policies, "policy", nil, "show only violations of this policy; can be repeated")
	flags.BoolVar(&run.scan, "scan", false, "evaluate the policies now instead of reading reports")
	flags.BoolVarP(&run.watch, "watch", "w", false, "repeat the result until Ctrl-C")
	flags.DurationVar(&run.interval, "interval", 10*time.Second, "time between two updates with --watch; at least 30s after a scan")
	run.AddCluster(c)
	flags.Lookup("namespace").Usage = "namespace of the objects; default is all namespaces, and objects without one"
	_ = c.RegisterFlagCompletionFunc("policy", run.completePolicy) // the flag exists and has no other completion
	run.AddFormat(c)
	return c
}

// completePolicy returns the names of the policies of the cluster, if the user may list them.
func (c *command) completePolicy(of *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(of.Context(), completionTimeout)
	defer cancel()
	config, err := c.Config()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, err := connect.NewCluster(ctx, config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cluster.Names(ctx, "webhookpolicies."+v1alpha1.GroupName, ""), cobra.ShellCompDirectiveNoFileComp
}

func (c *command) run(ctx context.Context) error {
	if c.interval < minInterval {
		return fmt.Errorf("--interval is %s: use %s or more", c.interval, minInterval)
	}
	v, err := c.update(ctx)
	if v == nil || !c.watch {
		return err
	}
	return c.follow(ctx, v)
}

// follow repeats the result until ctx ends.
func (c *command) follow(ctx context.Context, v *Violations) error {
	for ctx.Err() == nil {
		pause := c.interval
		if v.Source == SourceScan {
			pause = max(pause, minScanInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		next, err := c.update(ctx)
		switch {
		case next != nil:
			v = next
		case ctx.Err() == nil: // the next update may succeed
			_, _ = fmt.Fprintln(c.ErrOut, "error:", err)
		}
	}
	return nil
}

// update finds and prints the violations; nil if that fails. Otherwise, the error is the result of
// the command.
func (c *command) update(ctx context.Context) (*Violations, error) {
	v, skipped, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	v.sort()
	if err := c.print(v); err != nil {
		return nil, err
	}
	return v, skipped.Result(v.err())
}

func (c *command) print(v *Violations) error {
	if c.Format != output.Table {
		return c.Print(v)
	}
	if c.watch && output.IsTerminal(c.Out) {
		_, _ = fmt.Fprint(c.Out, output.EraseScreen(c.Out))
	}
	return v.write(c.Out, time.Now())
}
