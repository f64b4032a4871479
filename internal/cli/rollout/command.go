// Package rollout is the command rollout, which shows and changes the steps of rollouts.
package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/nearest"
	"github.com/ostiary/ostiary/internal/rollout"
)

const (
	statusAction = "status"
	// pollInterval is how often the command looks whether the leader has acted.
	pollInterval = 250 * time.Millisecond
	// maxConflicts is how often the command writes again after a conflict with the status.
	maxConflicts = 10
)

type command struct {
	*output.Options
	flags    *connect.Flags
	policies dynamic.ResourceInterface

	binding string
	wait    time.Duration
}

// NewCommand returns the command rollout.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "rollout status|pause|resume|skip|restart|complete POLICY [-b BINDING]",
		Short: "Show or change the step of a rollout",
		Long: "Show or change the step of a rollout. status shows the steps, pause keeps the step in effect, resume ends a pause, skip " +
			"begins the next step at once, restart begins the first one, and complete begins the final action, for example " +
			"after a restore of a backup without statuses.\n\n" +
			"Without --binding, the command is about each binding with a rollout. It sets the annotation " + rollout.Annotation + ", with the " +
			"tokens of the steps, so that repeating it changes nothing, and waits until the leader of Ostiary has acted. You need the permissions " +
			"to get and patch policies, and the verb rollout on the policy.",
		Example: "  kubectl ostiary rollout status require-team-label\n" +
			"  kubectl ostiary rollout pause require-team-label -b everywhere\n" +
			"  kubectl ostiary rollout resume require-team-label -b everywhere",
		ValidArgs: actions(),
		Args:      checkArgs,
	}
	c.Flags().StringVarP(&run.binding, "binding", "b", "", "name of a binding; default is each one with a rollout")
	c.Flags().DurationVar(&run.wait, "wait", 15*time.Second, "how long to wait until the leader has acted; 0 does not wait")
	run.flags = connect.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error { return run.run(c.Context(), args[0], args[1]) }
	return c
}

func actions() []string {
	out := []string{statusAction}
	for _, a := range rollout.Actions() {
		out = append(out, string(a))
	}
	return out
}

func checkArgs(_ *cobra.Command, args []string) error {
	list := strings.Join(actions(), ", ")
	switch {
	case len(args) == 0:
		return errors.New("write what to do (" + list + ") and the name of a policy")
	case !slices.Contains(actions(), args[0]):
		hint := ""
		if name := nearest.Name(args[0], slices.Values(actions())); name != "" {
			hint = fmt.Sprintf(", did you mean %q?", name)
		}
		return fmt.Errorf("unknown command %q: write one of %s%s", args[0], list, hint)
	case len(args) != 2:
		return errors.New("name one policy: kubectl get whp lists them")
	}
	return nil
}

func (c *command) run(ctx context.Context, action, policy string) error {
	config, err := c.flags.Config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	c.policies = client.Resource(v1alpha1.GroupVersion.WithResource("webhookpolicies"))
	p, err := c.read(ctx, policy)
	if err != nil {
		return err
	}
	bindings, err := selectBindings(p, c.binding)
	if err != nil {
		return err
	}
	if action == statusAction {
		return write(c.Out, p, bindings, time.Now())
	}
	commands, err := commandsFor(p, bindings, rollout.Action(action), c.binding != "")
	if err != nil {
		return err
	}
	if err := c.annotate(ctx, p, commands); err != nil {
		return err
	}
	return c.report(ctx, policy, commands)
}

func (c *command) read(ctx context.Context, name string) (*v1alpha1.WebhookPolicy, error) {
	stored, err := c.policies.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the policy %s: %w", name, err)
	}
	p := &v1alpha1.WebhookPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, p); err != nil {
		return nil, fmt.Errorf("reading the policy %s: %w", name, err)
	}
	return p, nil
}

// selectBindings returns the bindings with a rollout, or the one with a name.
func selectBindings(p *v1alpha1.WebhookPolicy, name string) ([]*v1alpha1.Binding, error) {
	var out []*v1alpha1.Binding
	var names []string
	for i := range p.Spec.Bindings {
		if b := &p.Spec.Bindings[i]; b.Rollout != nil {
			names = append(names, b.Name)
			if name == "" || name == b.Name {
				out = append(out, b)
			}
		}
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("the policy %s has no rollout: set spec.bindings[].rollout", p.Name)
	case len(out) == 0:
		return nil, fmt.Errorf("the policy %s has no binding %q with a rollout: choose one of %s", p.Name, name, strings.Join(names, ", "))
	}
	return out, nil
}

// commandsFor returns the commands for bindings in their recorded steps. Bindings at their final action
// are left out, unless one is named.
func commandsFor(p *v1alpha1.WebhookPolicy, bindings []*v1alpha1.Binding, action rollout.Action, isNamed bool) ([]rollout.Command, error) {
	var out []rollout.Command
	for _, b := range bindings {
		state := rollout.StateOf(p.Status.Bindings, b.Name)
		switch {
		case state.Token == "":
			return nil, fmt.Errorf("the step of binding %q is not recorded yet: wait until a replica of Ostiary leads, see kubectl ostiary doctor",
				b.Name)
		case state.Final && action != rollout.Restart && isNamed:
			return nil, fmt.Errorf("binding %q has reached its final action: only restart changes it", b.Name)
		case state.Final && action != rollout.Restart:
			continue
		}
		out = append(out, rollout.Command{Action: action, Binding: b.Name, Token: state.Token})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("each binding of the policy %s has reached its final action: only restart changes it", p.Name)
	}
	return out, nil
}

// annotate writes the commands, and keeps those for other bindings that wait for the leader.
func (c *command) annotate(ctx context.Context, p *v1alpha1.WebhookPolicy, commands []rollout.Command) (err error) {
	for range maxConflicts {
		if err = c.patch(ctx, p, append(waiting(p, commands), commands...)); !apierrors.IsConflict(err) {
			break
		}
		if p, err = c.read(ctx, p.Name); err != nil {
			return err
		}
		if err := checkCurrent(p, commands); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("changing the policy %s: %w", p.Name, err)
	}
	return nil
}

func (c *command) patch(ctx context.Context, p *v1alpha1.WebhookPolicy, commands []rollout.Command) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": p.ResourceVersion, "annotations": map[string]any{rollout.Annotation: rollout.FormatCommands(commands)},
	}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	_, err = c.policies.Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-ostiary"})
	return err //nolint:wrapcheck // the caller looks at conflicts
}

// waiting returns the commands of the policy for other bindings, as far as they are about the steps in
// effect.
func waiting(p *v1alpha1.WebhookPolicy, commands []rollout.Command) []rollout.Command {
	all, _ := rollout.ParseCommands(p.Annotations[rollout.Annotation]) // what cannot be read has no effect
	return slices.DeleteFunc(all, func(old rollout.Command) bool {
		isReplaced := slices.ContainsFunc(commands, func(c rollout.Command) bool { return c.Binding == old.Binding })
		return isReplaced || old.Token != rollout.StateOf(p.Status.Bindings, old.Binding).Token
	})
}

// checkCurrent returns an error if a step has ended since it was read.
func checkCurrent(p *v1alpha1.WebhookPolicy, commands []rollout.Command) error {
	for _, command := range commands {
		if state := rollout.StateOf(p.Status.Bindings, command.Binding); state.Token != command.Token {
			return fmt.Errorf("the step of binding %q has changed meanwhile, to %s: "+
				"look at kubectl ostiary rollout status %s, and repeat the command",
				command.Binding, state.Action, p.Name)
		}
	}
	return nil
}

// report waits until the leader has acted, and writes the steps in effect.
func (c *command) report(ctx context.Context, policy string, commands []rollout.Command) error {
	deadline := time.Now().Add(c.wait)
	for {
		p, err := c.read(ctx, policy)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(commands), func(command rollout.Command) bool {
			return rollout.StateOf(p.Status.Bindings, command.Binding).Token != command.Token
		})
		if len(left) == 0 {
			return c.writeStates(p, commands)
		}
		if !time.Now().Before(deadline) {
			_, err := fmt.Fprintf(c.Out, "%s: %s of %s is requested, and no leader has acted yet: see kubectl ostiary doctor\n",
				policy, left[0].Action, left[0].Binding)
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func (c *command) writeStates(p *v1alpha1.WebhookPolicy, commands []rollout.Command) error {
	for _, command := range commands {
		state := rollout.StateOf(p.Status.Bindings, command.Binding)
		text := state.Action
		if state.Step != "" {
			text += ", step " + state.Step
		}
		if state.Paused {
			text += ", paused"
		}
		if _, err := fmt.Fprintf(c.Out, "%s, binding %s: %s\n", p.Name, command.Binding, text); err != nil {
			return fmt.Errorf("writing the steps: %w", err)
		}
	}
	return nil
}
