// Package evaluate is the command eval.
package evaluate

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/load"
	"github.com/ostiary/ostiary/internal/cli/offline"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/policy"
)

type command struct {
	*output.Options
	inputs.Flags

	old     []string
	deleted bool
	all     bool
	diff    bool
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "eval -f FILE...",
		Short: "Show what policies decide for objects",
		Long: "Show what policies decide for objects, as if each object were created.\n\n" +
			"Files have policies, the objects to evaluate, and what policies read: params, Namespaces with their labels, and " +
			"CustomResourceDefinitions. Mutations come first, and validations get their result. The API server's defaults are not added.\n\n" +
			"Exit status 1 means that a policy denies an object or fails with an error.",
		Example: "  kubectl ostiary eval -f policy.yaml -f pods.yaml\n" +
			"  kubectl ostiary eval -f policy.yaml -f pods.yaml --old old-pods.yaml --user alice -o json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	run.AddFiles(c)
	run.AddVersion(c)
	run.AddUser(c)
	c.Flags().StringSliceVar(&run.old, "old", nil, "files with the stored objects: objects of the same kind and name are updates")
	c.Flags().BoolVar(&run.deleted, "delete", false, "evaluate the deletion of the objects")
	c.Flags().BoolVar(&run.all, "all", false, "also show policies that allow, skip or do not match an object")
	c.Flags().BoolVar(&run.diff, "diff", true, "show what mutations change")
	o.AddFormat(c)
	return c
}

func (c *command) run(ctx context.Context) error {
	in, err := c.Load(ctx, c.In)
	if err != nil {
		return err
	}
	if len(in.Policies) == 0 {
		return inputs.NoPolicyError(c.Files)
	}
	apis, err := offline.NewAPIs(c.Kubernetes.Engine, in.Definitions)
	if err != nil {
		return err
	}
	engine, err := offline.NewEngine(in.Policies, policy.NewCompilerFor(c.Kubernetes.Engine), apis)
	if err != nil {
		return err
	}
	old, err := c.oldObjects(ctx)
	if err != nil {
		return err
	}
	requests, err := c.requests(in.Objects, old, apis)
	if err != nil {
		return err
	}
	evaluations, err := c.evaluate(ctx, engine, offline.NewWorld(apis, in.Namespaces, in.Objects, offline.Answers(nil)), in.Objects, requests)
	if err != nil {
		return err
	}
	return c.print(evaluations, len(in.Policies))
}

// oldObjects returns the objects of --old by their identity.
func (c *command) oldObjects(ctx context.Context) (map[string]*load.Object, error) {
	out := map[string]*load.Object{}
	if len(c.old) == 0 {
		return out, nil
	}
	objects, err := load.Objects(ctx, c.old, load.Options{Stdin: c.In})
	if err != nil {
		return nil, err
	}
	for i := range objects {
		out[identity(&objects[i])] = &objects[i]
	}
	return out, nil
}

func identity(o *load.Object) string { return o.APIVersion + " " + o.String() }

func (c *command) requests(objects []load.Object, old map[string]*load.Object, apis *offline.APIs) ([]*admissionv1.AdmissionRequest, error) {
	out := make([]*admissionv1.AdmissionRequest, len(objects))
	for i := range objects {
		object, before := &objects[i], old[identity(&objects[i])]
		if c.deleted {
			object, before = nil, &objects[i]
		}
		request, err := apis.NewRequest(object, before, offline.RequestOptions{User: c.UserInfo()})
		if err != nil {
			return nil, err
		}
		out[i] = request
	}
	return out, nil
}

// evaluate evaluates all requests concurrently, in their order. It keeps only what is
// printed.
func (c *command) evaluate(ctx context.Context, engine *offline.Engine, world *offline.World, objects []load.Object, requests []*admissionv1.AdmissionRequest) ([]Evaluation, error) {
	out := make([]Evaluation, len(requests))
	failed := make([]error, len(requests))
	var next atomic.Int64
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(requests) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				result, err := engine.Evaluate(ctx, requests[i], world, offline.Options{Details: true})
				if failed[i] = err; err == nil {
					out[i] = c.evaluation(&objects[i], requests[i], result)
				}
			}
		})
	}
	running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, err := range failed {
		if err != nil {
			return nil, fmt.Errorf("evaluating %s %s: %w", requests[i].Kind.Kind, requests[i].Name, err)
		}
	}
	return out, nil
}
