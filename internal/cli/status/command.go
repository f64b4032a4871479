package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/internal/cli/output"
)

const help = `Show policies, the requests that they deny, the replicas of Ostiary and its certificates.

The numbers of denied requests are those of the replicas' metrics, which the command reads through
port-forwards. This needs the permission to create pods/portforward, and the bearer token of a user
who may get the URL /metrics. A context with a client certificate, as kind and kubeadm write it, has
no token: --metrics-service-account names a ServiceAccount whose token the command requests for 10
minutes, which needs the permission to create serviceaccounts/token. Without access, the columns are
n/a, and the reason is below the table.

Without -f, the command reads the cluster of the current context. With -f, it reads a dump of one.
Exit status 1 means that a policy is not Ready. With --watch, Ctrl-C ends the command with exit
status 0.`

const minInterval = time.Second

type command struct {
	*output.Options
	connection *connect.Flags
	files      []string
	watch      bool
	interval   time.Duration
	port       int32
	account    serviceAccount
}

// NewCommand returns the command.
func NewCommand(shared *output.Options) *cobra.Command {
	o := &command{Options: shared}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show policies, denied requests, replicas and certificates",
		Long:  help,
		Example: "  kubectl ostiary status\n" +
			"  kubectl ostiary status --metrics-service-account monitoring/prometheus-k8s\n" +
			"  kubectl ostiary status -f cluster.yaml",
		Args: output.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "a file or directory with the objects of a cluster, - for stdin; can be repeated")
	flags.BoolVarP(&o.watch, "watch", "w", false, "repeat the status until Ctrl-C, each time with the denied requests per minute")
	flags.DurationVar(&o.interval, "interval", 5*time.Second, "time between two updates with --watch")
	flags.Int32Var(&o.port, "metrics-port", 8443, "port of the metrics of Ostiary's Pods")
	flags.Var(&o.account, "metrics-service-account",
		"ServiceAccount that may get the URL /metrics, as NAMESPACE/NAME, whose token reads the metrics")
	c.MarkFlagsMutuallyExclusive("filename", "watch")
	o.connection = connect.AddFlags(flags)
	o.AddFormat(c, output.Wide)
	return c
}

func (o *command) run(ctx context.Context) error {
	if len(o.files) > 0 {
		skipped := output.NewSkipped(o.ErrOut)
		dump, err := cluster.Read(ctx, o.files, o.In, skipped.Add)
		if err != nil {
			return err
		}
		skipped.Write()
		now := time.Now()
		s := statusOf(dump, nil, errors.New("a dump has no metrics"), now)
		return errors.Join(o.print(s, now), skipped.Result(failure(s)))
	}
	if o.interval < minInterval {
		return fmt.Errorf("--interval is %s: use %s or more", o.interval, minInterval)
	}
	config, err := o.connection.Config()
	if err != nil {
		return err
	}
	var past history
	s, err := o.update(ctx, config, &past)
	if err != nil || !o.watch {
		return errors.Join(err, failure(s))
	}
	return o.follow(ctx, config, &past)
}

// follow shows the status until ctx ends.
func (o *command) follow(ctx context.Context, config *rest.Config, past *history) error {
	ticker := time.NewTicker(o.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := o.update(ctx, config, past); err != nil {
			if ctx.Err() != nil {
				return nil // the user ends the command
			}
			_, _ = fmt.Fprintln(o.ErrOut, "error:", err) // the next update may succeed
		}
	}
}

// update reads and prints the status.
func (o *command) update(ctx context.Context, config *rest.Config, past *history) (*Status, error) {
	note := func(err error) { _, _ = fmt.Fprintln(o.ErrOut, "not shown:", err) }
	dump, err := cluster.FetchOstiary(ctx, config, note)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	m, err := o.scrape(ctx, config, dump, now)
	s := statusOf(dump, m, err, now)
	past.add(s, m, now)
	return s, o.print(s, now)
}

func (o *command) print(s *Status, now time.Time) error {
	if !o.IsTable() {
		return o.Print(s)
	}
	if o.watch && output.IsTerminal(o.Out) {
		_, _ = fmt.Fprint(o.Out, output.EraseScreen(o.Out))
	}
	return s.write(o.Out, output.Colored(o.Out), o.Format == output.Wide, now)
}

func failure(s *Status) error {
	if s == nil || s.notReady() == 0 {
		return nil
	}
	return &output.FindingsError{Text: output.Count(s.notReady(), "policy is", "policies are") + " not ready"}
}
