// Package exempt is the commands exempt and baseline, which write exceptions of policies.
package exempt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
)

type command struct {
	*output.Options
	inputs.Flags

	policy      string
	validations []string
	reason      string
	lasts       time.Duration
	apply       bool
}

// NewCommand returns the command exempt.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "exempt TYPE/NAME --policy POLICY --for DURATION --reason TEXT",
		Short: "Write an exception of a policy for one object",
		Long: "Write an exception of a policy for one object of the cluster, with an end and a reason.\n\n" +
			"For a workload, such as deploy/web, the exception has an entry for the workload and one for its Pods, by the labels of the " +
			"template. The exception is printed, for Git; with --apply it is created in the cluster, which needs the verb use on " +
			"webhookpolicies/exceptions with the name of the policy.",
		Example: "  kubectl ostiary exempt pod/web-0 -n shop --policy require-team-label --for 2h --reason INC-42",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return run.exempt(c.Context(), args[0]) },
	}
	run.addFlags(c)
	c.Flags().StringSliceVar(&run.validations, "validation", []string{v1alpha1.AllValidations},
		"validation of the policy that the object may fail; can be repeated; * is all, and mutations and plugins")
	c.Flags().BoolVar(&run.apply, "apply", false, "create the exception in the cluster")
	return c
}

func (c *command) addFlags(of *cobra.Command) {
	f := of.Flags()
	f.StringVar(&c.policy, "policy", "", "name of the policy")
	f.StringVar(&c.reason, "reason", "", "why the exception exists, for example the number of a ticket")
	f.DurationVar(&c.lasts, "for", 0, "how long the exception lasts, such as 2h; without it, it has no end")
	c.AddCluster(of)
	for _, name := range []string{"policy", "reason"} {
		_ = of.MarkFlagRequired(name) // the flag exists
	}
	c.AddFormat(of)
	c.Format = output.YAML
	of.Flags().Lookup("output").DefValue = string(output.YAML)
}

func (c *command) exempt(ctx context.Context, arg string) error {
	resource, name, ok := strings.Cut(arg, "/")
	if !ok || resource == "" || name == "" {
		return fmt.Errorf("invalid argument %q: name one object as TYPE/NAME, such as deploy/web", arg)
	}
	cluster, err := c.connect(ctx)
	if err != nil {
		return err
	}
	namespace, err := c.Namespace()
	if err != nil {
		return err
	}
	t, err := find(ctx, cluster, resource, namespace, name)
	if err != nil {
		return err
	}
	policy, err := c.policyOf(ctx, cluster)
	if err != nil {
		return err
	}
	x := t.exception(c.terms(policy, c.validations))
	if err := check(x, policy, time.Now()); err != nil {
		return err
	}
	if c.apply {
		return c.create(ctx, cluster, x)
	}
	return c.write([]v1alpha1.Exception{x})
}

func (c *command) connect(ctx context.Context) (*connect.Cluster, error) {
	if strings.TrimSpace(c.reason) == "" || c.lasts < 0 {
		return nil, errors.New("--reason needs a text, and --for a time that is not negative")
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return connect.NewCluster(ctx, config)
}

func (c *command) terms(spec *v1alpha1.WebhookPolicySpec, validations []string) terms {
	out := terms{policy: c.policy, spec: spec, validations: validations, reason: c.reason}
	if c.lasts > 0 {
		end := metav1.NewTime(time.Now().Add(c.lasts).Truncate(time.Second).UTC())
		out.end = &end
	}
	return out
}

// find reads an object of the cluster.
func find(ctx context.Context, from *connect.Cluster, resource, namespace, name string) (*target, error) {
	u, err := from.Get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	gr, err := from.ResourceOf(resource)
	return &target{Unstructured: u, resource: gr}, err
}

func (c *command) policyOf(ctx context.Context, from *connect.Cluster) (*v1alpha1.WebhookPolicySpec, error) {
	u, err := from.Get(ctx, "webhookpolicies."+v1alpha1.GroupName, "", c.policy)
	if err != nil {
		return nil, err
	}
	p := &v1alpha1.WebhookPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p); err != nil {
		return nil, fmt.Errorf("reading the policy %q: %w", c.policy, err)
	}
	return &p.Spec, nil
}

func (c *command) create(ctx context.Context, in *connect.Cluster, x v1alpha1.Exception) error {
	object, err := manifest(x)
	if err != nil {
		return err
	}
	resource := v1alpha1.GroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")
	if err := in.Create(ctx, resource, object); err != nil {
		return err
	}
	end := "without an end"
	if at := x.GetSpec().ExpirationTime; at != nil {
		end = "until " + at.Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(c.Out, "created the exception %s %s\n", output.Printable(x.GetName()), end)
	return err
}

// write prints exceptions: in YAML as documents, in JSON as a list.
func (c *command) write(all []v1alpha1.Exception) error {
	objects := make([]any, len(all))
	for i, x := range all {
		object, err := manifest(x)
		if err != nil {
			return err
		}
		objects[i] = object.Object
	}
	if c.Format == output.JSON {
		return c.Print(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	c.Format = output.YAML
	for _, object := range objects {
		if _, err := fmt.Fprintln(c.Out, "---"); err != nil {
			return fmt.Errorf("writing the exceptions: %w", err)
		}
		if err := c.Print(object); err != nil {
			return err
		}
	}
	return nil
}
