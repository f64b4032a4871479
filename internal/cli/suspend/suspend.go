// Package suspend has the commands suspend and resume.
package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
)

const permission = "You need the permissions to patch policies, and the verb suspend on the policy."

// NewCommand returns the command suspend.
func NewCommand(o *output.Options) *cobra.Command {
	var lasts time.Duration
	c := &cobra.Command{
		Use:   "suspend POLICY --for DURATION",
		Short: "Let requests pass a policy for some time",
		Long: "Let requests pass a policy for some time. The policy then neither denies nor changes requests, and its spec stays as it is, " +
			"so that GitOps sees no difference. The audit of stored objects goes on. The end needs no command, and resume ends it earlier.\n\n" +
			"The command sets the annotation " + v1alpha1.AnnotationSuspendedUntil + ". " + permission,
		Example: "  kubectl ostiary suspend require-team-label --for 1h",
		Args:    onePolicy,
	}
	c.Flags().DurationVar(&lasts, "for", 0, "how long the policy has no effect, such as 30m or 2h, at most 168h; required")
	flags := connect.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		if lasts <= 0 {
			return errors.New("--for is required: write how long requests pass the policy, such as --for 1h")
		}
		if lasts > v1alpha1.MaxSuspension {
			return fmt.Errorf("--for is longer than %s: suspend the policy for that time, and for longer change its spec, such as "+
				"spec.bindings[].validationActions", v1alpha1.MaxSuspension)
		}
		until := time.Now().Add(lasts).UTC().Truncate(time.Second)
		if err := annotate(c.Context(), flags, args[0], until.Format(time.RFC3339)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(o.Out, "%s is suspended until %s: it neither denies nor changes requests until then\n",
			args[0], until.Format(time.RFC3339))
		return err
	}
	return c
}

// NewResumeCommand returns the command resume.
func NewResumeCommand(o *output.Options) *cobra.Command {
	c := &cobra.Command{
		Use:     "resume POLICY",
		Short:   "End the suspension of a policy",
		Long:    "End the suspension of a policy: see suspend. " + permission,
		Example: "  kubectl ostiary resume require-team-label",
		Args:    onePolicy,
	}
	flags := connect.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := annotate(c.Context(), flags, args[0], nil); err != nil {
			return err
		}
		_, err := fmt.Fprintf(o.Out, "%s is not suspended\n", args[0])
		return err
	}
	return c
}

func onePolicy(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("name one policy: kubectl get whp lists them")
	}
	return nil
}

// annotate sets or, with nil, removes the annotation of a policy.
func annotate(ctx context.Context, flags *connect.Flags, policy string, until any) error {
	config, err := flags.Config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	policies := client.Resource(v1alpha1.GroupVersion.WithResource("webhookpolicies"))
	if until != nil {
		stored, err := policies.Get(ctx, policy, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the policy %s: %w", policy, err)
		}
		if spec, _ := stored.Object["spec"].(map[string]any); spec["backend"] != nil {
			return fmt.Errorf("%s has a backend, which API servers call themselves, so it cannot be suspended: delete the policy instead", policy)
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationSuspendedUntil: until}},
	})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	if _, err := policies.Patch(ctx, policy, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-ostiary"}); err != nil {
		return fmt.Errorf("changing the policy %s: %w", policy, err)
	}
	return nil
}
