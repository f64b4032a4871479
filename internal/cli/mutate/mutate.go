// Package mutate is the command mutate.
package mutate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

// batchSize is the number of objects that are in memory at once, besides those of files.
const batchSize = 500

type command struct {
	*output.Options
	inputs.Flags

	create  bool
	setting *inputs.Setting
	batch   []*load.Object
	counts
}

// counts are those of the summary.
type counts struct{ objects, changed, failed, unasked, uncalled int }

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "mutate [RESOURCE...] -f FILE... [--from-cluster]",
		Short: "Print what mutations would change in existing objects",
		Long: "Print what mutations would change in existing objects, as apply configurations of the changed fields, as JSON patches, " +
			"or as a diff.\n\n" +
			"Objects come from files, from stdin, or from the cluster of the current context: name their resources, and limit them to " +
			"a namespace with -n. They are read with your permissions, a page at a time. Nothing is written to the cluster.\n\n" +
			"Each object is evaluated as an update that changes nothing. With --create it is evaluated as a creation with the same content, " +
			"for policies that only match new objects. Validations have no effect: the API server evaluates them when you apply the result.\n\n" +
			"Apply the result with: kubectl apply --server-side --field-manager policies -f -\n\n" +
			"An apply configuration cannot remove a field. Objects of which a mutation removes one are skipped: use -o patch for them.\n\n" +
			"Exit status 1 means that a mutation fails with an error.",
		Example: "  kubectl ostiary mutate -f mutation.yaml -f pods.yaml\n" +
			"  kubectl ostiary mutate pods -n shop --from-cluster -f mutation.yaml -o diff",
		RunE: func(c *cobra.Command, args []string) error { return run.run(c.Context(), args) },
	}
	run.AddVersion(c)
	run.AddUser(c)
	run.AddSources(c)
	c.Flags().BoolVar(&run.create, "create", false, "evaluate creations of the objects instead of updates")
	o.AddFormats(c, output.YAML, output.JSON, output.Patch, output.Diffs)
	return c
}

func (c *command) run(ctx context.Context, resources []string) error {
	if len(resources) > 0 && !c.FromCluster {
		return fmt.Errorf("the resource %s needs --from-cluster; name files with -f", output.Printable(resources[0]))
	}
	progress := c.StartProgress("reading policies and objects")
	defer progress.Stop()
	s, err := c.Setting(ctx, c.In, progress, policy.NewCompilerFor)
	if err != nil {
		return err
	}
	if c.setting = s; len(s.Objects) == 0 && len(resources) == 0 {
		return s.Skipped.Instead(errors.New("there is no object to evaluate: name its file with -f, " +
			"or its resource, such as deployments, with --from-cluster"))
	}
	progress.Begin("evaluating objects", 0)
	for i := range s.Objects {
		if err := c.add(ctx, &s.Objects[i]); err != nil {
			return err
		}
	}
	for _, resource := range resources {
		if err := c.addResource(ctx, resource); err != nil {
			return err
		}
	}
	if err := c.flush(ctx); err != nil {
		return err
	}
	progress.Stop()
	return s.Skipped.Result(c.summarize())
}

// addResource adds the objects of a resource of the cluster.
func (c *command) addResource(ctx context.Context, resource string) error {
	return c.setting.Cluster.EachNamed(ctx, resource, c.GivenNamespace(), func(u *unstructured.Unstructured) error {
		u.SetManagedFields(nil) // they take as much memory as the rest
		raw, err := u.MarshalJSON()
		if err != nil {
			return fmt.Errorf("reading %s/%s: %w", resource, u.GetName(), err)
		}
		o, err := load.FromJSON("cluster:"+resource+"/"+u.GetName(), raw)
		if err != nil {
			return err
		}
		return c.add(ctx, o)
	})
}

// add adds an object. It evaluates and prints all that it has when they are a batch.
func (c *command) add(ctx context.Context, o *load.Object) error {
	c.batch = append(c.batch, o)
	if len(c.batch) < batchSize {
		return nil
	}
	return c.flush(ctx)
}

// flush evaluates the objects of the batch concurrently, and prints the results in their order.
func (c *command) flush(ctx context.Context) error {
	results := make([]result, len(c.batch))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, o := range c.batch {
		group.Go(func() (err error) {
			if results[i], err = c.evaluate(ctx, o); err != nil {
				return err
			}
			return c.render(&results[i])
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range results {
		if err := c.print(&results[i]); err != nil {
			return err
		}
	}
	c.objects += len(c.batch)
	c.batch = c.batch[:0]
	return nil
}

// result is what mutations do to an object.
type result struct {
	*load.Object
	before, after []byte // after is nil if nothing changes
	text          []byte // that is printed; empty if there is no difference
	namespace     string
	errs          []error // of mutations
	unasked       bool    // a policy that asks the authorizer is left out
	uncalled      bool    // the backend of a policy is not called
	skipped       error   // why the object is not evaluated
}

// evaluate mutates an object as an update that changes nothing, or as a creation.
func (c *command) evaluate(ctx context.Context, o *load.Object) (result, error) {
	r := result{Object: o}
	if c.setting.Engine.NeverMatches(o.GroupVersionKind()) {
		return r, nil
	}
	if o.Metadata.Name == "" {
		r.skipped = o.Errorf("metadata.name", "an existing object has a name")
		return r, nil
	}
	var old *load.Object
	if !c.create {
		old = o
	}
	request, err := c.setting.Engine.APIs.NewRequest(o, old, offline.RequestOptions{User: c.setting.User, DryRun: true})
	if err != nil {
		r.skipped = err
		return r, nil //nolint:nilerr // it is the result for this object
	}
	r.before, r.namespace = request.Object.Raw, request.Namespace
	options := offline.Options{LeaveOut: c.setting.Cluster == nil, SkipValidation: true}
	mutated, err := c.setting.Engine.Evaluate(ctx, request, c.setting.World, options)
	if err == nil && slices.ContainsFunc(mutated.Outcomes, isError) {
		options.Details = true // they take as long as all the rest
		mutated, err = c.setting.Engine.Evaluate(ctx, request, c.setting.World, options)
	}
	if err != nil {
		return r, fmt.Errorf("evaluating %s: %w", o, err)
	}
	if r.addErrors(mutated); len(r.errs) == 0 && mutated.Changed {
		r.after = mutated.Object
	}
	return r, nil
}

// isError reports whether a mutation fails, or a plugin refuses the object.
func isError(o offline.Outcome) bool {
	return o.Phase == registration.PhaseMutate && (o.Decision == policy.DecisionError || o.Decision == policy.DecisionDeny)
}

// addErrors adds the errors of the mutating phase, and what was left out of it.
func (r *result) addErrors(of *offline.Result) {
	for i := range of.Outcomes {
		o := &of.Outcomes[i]
		switch {
		case o.Phase == registration.PhaseMutate && o.Decision == offline.DecisionNotEvaluated:
			r.unasked = true
		case o.Phase == registration.PhaseMutate && o.Decision == offline.DecisionBackend:
			r.uncalled = true
		case isError(*o):
			for _, message := range o.Messages() {
				r.errs = append(r.errs, fmt.Errorf("%s: %s: %s", r, o.Policy, message))
			}
		}
	}
}

// summarize writes the counts. The error tells whether a mutation failed.
func (c *command) summarize() error {
	text := fmt.Sprintf("%s, %s: %s changed, %s", output.Count(c.objects, "object", "objects"),
		output.Count(len(c.setting.Engine.Names()), "policy", "policies"),
		output.Count(c.changed, "object", "objects"), output.Count(c.failed, "error", "errors"))
	if c.unasked > 0 {
		text += fmt.Sprintf("; for %s, policies that ask the authorizer were left out: use --from-cluster",
			output.Count(c.unasked, "object", "objects"))
	}
	if c.uncalled > 0 {
		text += fmt.Sprintf("; for %s, policies with a backend were left out, because only API servers call it",
			output.Count(c.uncalled, "object", "objects"))
	}
	if c.failed > 0 {
		return &output.FindingsError{Text: text}
	}
	_, err := fmt.Fprintln(c.ErrOut, text)
	return err
}
