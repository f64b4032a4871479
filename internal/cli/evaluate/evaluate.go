// Package evaluate is the command eval.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/report"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

type command struct {
	*output.Options
	inputs.Flags
	reports report.Flags

	old     []string
	deleted bool
	all     bool
	diff    bool
	summary bool
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:        "eval -f FILE... [--from-cluster]",
		SuggestFor: []string{"evaluate", "apply"},
		Short:      "Show what policies decide for objects",
		Long: "Show what policies decide for objects, as if each object were created.\n\n" +
			"Files have policies, the objects to evaluate, and what policies read: params, Namespaces with their labels, " +
			"CustomResourceDefinitions, and exceptions. Mutations come first, and validations get their result. " +
			"The API server's defaults are not added.\n\n" +
			"With --from-cluster, policies and what they read come from the cluster of the current context too. Objects and policies of files " +
			"replace those of the cluster. Nothing is written to the cluster.\n\n" +
			"Without a cluster, policies that ask the authorizer are not evaluated.\n\n" +
			"Exit status 1 means that a policy denies an object or fails with an error.",
		Example: "  kubectl ostiary eval -f policy.yaml -f pods.yaml\n" +
			"  kubectl ostiary eval -f policy.yaml -f pods.yaml --old old-pods.yaml --user alice -o json\n" +
			"  kubectl ostiary eval -f pods.yaml --from-cluster",
		Args: output.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	run.AddVersion(c)
	run.AddUser(c)
	run.AddSources(c)
	run.AddAction(c)
	run.At.AddTime(c.Flags())
	c.Flags().StringSliceVar(&run.old, "old", nil, "files with the stored objects: the objects of -f with the same apiVersion, kind, namespace and name are updates")
	c.Flags().BoolVar(&run.deleted, "delete", false, "evaluate the deletion of the objects")
	c.Flags().BoolVar(&run.all, "all", false, "also show policies that allow, skip or do not match an object")
	c.Flags().BoolVar(&run.diff, "diff", true, "show what mutations change")
	c.Flags().BoolVar(&run.summary, "summary", false,
		"show the number of objects by policy, namespace and decision instead of each object")
	run.reports.AddFlags(c)
	c.MarkFlagsMutuallyExclusive("summary", "heat-map")
	o.AddFormat(c)
	return c
}

func (c *command) run(ctx context.Context) error {
	if err := c.reports.Check(c.Format); err != nil {
		return err
	}
	progress := c.StartProgress("reading policies and objects")
	defer progress.Stop()
	s, err := c.Setting(ctx, c.In, progress, policy.NewCompilerFor)
	if err != nil {
		return err
	}
	if len(s.Objects) == 0 {
		return s.Skipped.Instead(errors.New("there is no object to evaluate: name its file with -f"))
	}
	old, err := c.oldObjects(ctx)
	if err != nil {
		return err
	}
	subjects := c.subjects(s, old, progress)
	if len(subjects) == 0 {
		if err := s.Skipped.Instead(nil); err != nil {
			return err
		}
	}
	progress.Begin("evaluating objects", int64(len(subjects)))
	evaluations, err := c.evaluate(ctx, s, subjects, progress)
	if err != nil {
		return err
	}
	progress.Stop()
	return s.Skipped.Result(c.print(evaluations, len(s.Engine.Names()), s.Skipped.Problems()))
}

// oldObjects returns the objects of --old by their identity.
func (c *command) oldObjects(ctx context.Context) (map[string]*load.Object, error) {
	out := map[string]*load.Object{}
	if len(c.old) == 0 {
		return out, nil
	}
	objects, err := load.Objects(ctx, c.old, load.Options{Stdin: c.In, AllowRemote: c.AllowRemote})
	if err != nil {
		return nil, err
	}
	for i := range objects {
		out[identity(&objects[i])] = &objects[i]
	}
	return out, nil
}

func identity(o *load.Object) string { return o.APIVersion + " " + o.String() }

// subject is an object with its request.
type subject struct {
	*load.Object
	request *admissionv1.AdmissionRequest
}

// subjects returns the objects that can be evaluated. It notes others.
func (c *command) subjects(s *inputs.Setting, old map[string]*load.Object, notes io.Writer) (out []subject) {
	var unmatched []string
	for i := range s.Objects {
		object, before := &s.Objects[i], old[identity(&s.Objects[i])]
		if s.Engine.NeverMatches(object.GroupVersionKind()) {
			unmatched = append(unmatched, object.String())
			continue
		}
		if c.deleted {
			object, before = nil, object
		}
		request, err := s.Engine.APIs.NewRequest(object, before, offline.RequestOptions{User: s.User})
		if err != nil {
			s.Skipped.Add(err)
			continue
		}
		out = append(out, subject{&s.Objects[i], request})
	}
	if len(unmatched) > 0 {
		_, _ = fmt.Fprintf(notes, "not evaluated, because no policy names their API groups: %s\n", output.Printable(output.Some(unmatched)))
	}
	return out
}

// evaluate evaluates all objects concurrently, in their order. It keeps only what is
// printed.
func (c *command) evaluate(ctx context.Context, s *inputs.Setting, subjects []subject, progress *output.Progress) ([]Evaluation, error) {
	options := offline.Options{Details: true, LeaveOut: s.Cluster == nil}
	out := make([]Evaluation, len(subjects))
	failed := make([]error, len(subjects))
	var next atomic.Int64
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(subjects) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				result, err := s.Engine.Evaluate(ctx, subjects[i].request, s.World, options)
				if failed[i] = err; err == nil {
					out[i] = c.evaluation(subjects[i].Object, subjects[i].request, result)
				}
				progress.Add(1)
			}
		})
	}
	running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, err := range failed {
		if err != nil {
			return nil, fmt.Errorf("evaluating %s %s: %w", subjects[i].Kind, subjects[i].Metadata.Name, err)
		}
	}
	return out, nil
}
