// Package command is the command replay.
package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/replay"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

const help = `Show what policies would have decided for requests in audit logs of API servers.

Record the logs with the audit level RequestResponse: a log of level Request has no results of
patches, and no deleted objects. Logs can be compressed with gzip, be directories with rotated
files, or stdin as "-". They are read as a stream, of any size.

Files of -f have policies, and what these read: params, Namespaces with their labels, and
CustomResourceDefinitions, and exceptions, which have the effect that they have at the time of
each request, or at that of --at. Policies that read oldObject have the decision "unknown" for
updates.

With --compare, the command shows requests for which the policies of -f decide differently
from those of --compare.

Exit status 1 means that a policy would have denied a request or failed, or, with --compare, that
decisions differ.`

type options struct {
	*output.Options
	inputs.Flags
	logs, others []string
	summary      bool
}

// NewCommand returns the command.
func NewCommand(shared *output.Options) *cobra.Command {
	o := &options{Options: shared}
	c := &cobra.Command{
		Use:   "replay --audit-log FILE... -f FILE...",
		Short: "Show what policies would have decided for recorded requests",
		Long:  help,
		Example: "  kubectl ostiary replay --audit-log audit.log -f policy.yaml\n" +
			"  kubectl ostiary replay --audit-log audit.log -f policy.yaml --compare old-policy.yaml -o json",
		Args: output.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.AddFiles(c)
	o.AddVersion(c)
	o.AddAction(c)
	o.At.AddTime(c.Flags())
	c.Flags().StringSliceVar(&o.logs, "audit-log", nil, "audit logs, or directories with them; - is stdin")
	c.Flags().StringSliceVar(&o.others, "compare", nil, "files with other policies, such as an earlier version")
	c.Flags().BoolVar(&o.summary, "summary", false,
		"count by policy, namespace and decision, and not by user and resource")
	_ = c.MarkFlagRequired("audit-log") // the flag exists
	o.AddFormat(c)
	return c
}

func (o *options) run(ctx context.Context) error {
	if slices.Contains(o.logs, replay.Stdin) && slices.Contains(slices.Concat(o.Files, o.others), load.Stdin) {
		return errors.New("stdin is either an audit log or a file with policies: name the other one")
	}
	progress := o.StartProgress("reading policies")
	defer progress.Stop()
	skipped := output.NewSkipped(progress)
	policies, others, err := o.policies(ctx, skipped)
	if err != nil {
		return err
	}
	skipped.Write()
	logs, err := replay.Files(o.logs)
	if err != nil {
		return err
	}
	progress.Begin("replaying requests", sizeOf(logs))
	summary, err := replay.Replay(ctx, logs, o.In, policies, others, func(bytes int) { progress.Add(int64(bytes)) })
	if err != nil {
		return err
	}
	progress.Stop()
	if o.summary {
		summary.Shorten()
	}
	o.explain(summary)
	if err := o.print(summary, others != nil); err != nil {
		return err
	}
	return skipped.Result(failure(summary, others != nil))
}

// sizeOf returns the size of all logs; 0 if it is not known.
func sizeOf(logs []string) (total int64) {
	for _, log := range logs {
		info, err := os.Stat(log)
		if err != nil || !info.Mode().IsRegular() { // as stdin, or what Replay reports
			return 0
		}
		total += info.Size()
	}
	return total
}

// policies reads the policies, and the others of --compare. Both read the same objects.
func (o *options) policies(ctx context.Context, skipped *output.Skipped) (policies, others *replay.Policies, err error) {
	in, err := o.Load(ctx, o.In, skipped)
	if err != nil {
		return nil, nil, err
	}
	more := &offline.Input{}
	if len(o.others) > 0 {
		flags := inputs.Flags{Files: o.others}
		if more, err = flags.Load(ctx, o.In, skipped); err != nil {
			return nil, nil, err
		}
	}
	if err := errors.Join(o.ReplaceActions(in.Policies), o.ReplaceActions(more.Policies)); err != nil {
		return nil, nil, err
	}
	apis, err := offline.NewAPIs(o.Kubernetes.Engine, slices.Concat(in.Definitions, more.Definitions))
	if err != nil {
		return nil, nil, err
	}
	world := offline.NewWorld(apis, slices.Concat(in.Namespaces, more.Namespaces), slices.Concat(in.Objects, more.Objects), offline.Answers(nil))
	world.AddExceptions(slices.Concat(in.Exceptions, more.Exceptions))
	if !o.At.IsZero() {
		world.SetTime(o.At.Time)
	}
	side := func(files []string, list []offline.Policy) (*replay.Policies, error) {
		engine, err := inputs.NewEngine(list, policy.NewCompilerFor(o.Kubernetes.Engine), apis, skipped)
		if err != nil {
			return nil, err
		}
		if len(engine.Names()) == 0 {
			return nil, skipped.Instead(inputs.NoPolicyError(files))
		}
		return &replay.Policies{Engine: engine, World: world, AtRequests: o.At.IsZero()}, nil
	}
	if policies, err = side(o.Files, in.Policies); err != nil || len(o.others) == 0 {
		return policies, nil, err
	}
	others, err = side(o.others, more.Policies)
	return policies, others, err
}

// explain writes on stderr what was replayed.
func (o *options) explain(s *replay.Summary) {
	_, _ = fmt.Fprintf(o.ErrOut, "%s, %s replayed\n", output.Count(s.Events, "event", "events"), output.Count(s.Requests, "request", "requests"))
	for _, reason := range slices.Sorted(maps.Keys(s.Skipped)) {
		_, _ = fmt.Fprintf(o.ErrOut, "%d not replayed: %s\n", s.Skipped[reason], reason)
	}
	if s.Malformed > 0 {
		_, _ = fmt.Fprintf(o.ErrOut, "%s left out, the first is %s\n", output.Count(s.Malformed, "line is no audit event and was", "lines are no audit events and were"), s.FirstMalformed)
	}
	if s.Truncated {
		_, _ = fmt.Fprintln(o.ErrOut, "the last line of a log is incomplete, and was left out")
	}
}

func (o *options) print(s *replay.Summary, compares bool) error {
	if o.Format != output.Table {
		return o.Print(s)
	}
	if len(s.Rows) == 0 {
		text := "No request would have been denied, changed or warned about"
		if compares {
			text = "The policies decide equally"
		}
		_, err := fmt.Fprintln(o.Out, text)
		return err
	}
	columns := o.columns(compares)
	header := make([]string, len(columns))
	rows := make([][]string, len(s.Rows))
	for i, c := range columns {
		header[i] = c.name
		for j := range s.Rows {
			rows[j] = append(rows[j], c.of(&s.Rows[j]))
		}
	}
	return output.WriteTable(o.Out, header, rows)
}

// column is a column of the table.
type column struct {
	name string
	of   func(r *replay.Row) string
}

func (o *options) columns(compares bool) []column {
	all := []column{
		{"POLICY", func(r *replay.Row) string { return r.Policy }},
		{"BEFORE", func(r *replay.Row) string { return r.Before }},
		{"DECISION", func(r *replay.Row) string { return r.Decision }},
		{"COUNT", func(r *replay.Row) string { return strconv.Itoa(r.Count) }},
		{"USER", func(r *replay.Row) string { return r.User }},
		{"NAMESPACE", func(r *replay.Row) string { return r.Namespace }},
		{"RESOURCE", func(r *replay.Row) string { return r.Resource }},
		{"EXAMPLE", func(r *replay.Row) string {
			return fmt.Sprintf("%s:%d %s", r.Example.File, r.Example.Line, r.Example.Object)
		}},
		{"MESSAGE", func(r *replay.Row) string { return r.Example.Message }},
	}
	return slices.DeleteFunc(all, func(c column) bool {
		return c.name == "BEFORE" && !compares || (c.name == "USER" || c.name == "RESOURCE") && o.summary
	})
}

// failure returns an error for the exit status if there are findings.
func failure(s *replay.Summary, compares bool) error {
	if compares {
		if len(s.Rows) > 0 {
			return &output.FindingsError{Text: "the policies decide differently"}
		}
		return nil
	}
	counts := map[policy.Decision]int{}
	for _, decisions := range s.Decisions {
		for decision, n := range decisions {
			counts[policy.Decision(decision)] += n
		}
	}
	denied, failed := counts[policy.DecisionDeny], counts[policy.DecisionError]
	if denied+failed == 0 {
		return nil
	}
	passed := output.Passed(counts[policy.DecisionWarn], counts[policy.DecisionAudit])
	return &output.FindingsError{Text: output.Count(denied, "denial", "denials") + ", " + output.Count(failed, "error", "errors") + passed}
}
