package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

type command struct {
	*output.Options
	inputs.Flags

	object, old string
	deleted     bool
	subresource string
	resource    string
	denial      string
	all, cost   bool
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:        "explain [TYPE/NAME] [POLICY...] [-f FILE...] [--object FILE]",
		SuggestFor: []string{"why", "describe"},
		Short:      "Show why policies decide as they do about a request or object",
		Long: "Show why policies decide as they do about one request: the values of all parts of their expressions, their costs, and the " +
			"binding that decided. Without a POLICY it explains all policies.\n\n" +
			"The request creates the object of --object, updates it with --old, or deletes it with --delete. --object can also be an AdmissionReview. " +
			"Policies and what they read come from files, and with --from-cluster from the cluster of the current context too.\n\n" +
			"TYPE/NAME is an object of the cluster, such as pod/web-0. The command shows which policies match it, which do not and why, and what " +
			"each decides now. The object is evaluated as it is stored, as if it were created. For policies that do not match its creation, the " +
			"request is an update without a change; for policies that match neither, it is a deletion. Of a workload, such as deploy/web, it " +
			"also evaluates the Pod of its template, as its controller creates it. Denials come first, and policies that match nothing only with " +
			"--all. With a POLICY, the command explains its expressions. Nothing is written to the cluster.\n\n" +
			"--denial finds the policy, the binding and the validation of an error message or a warning. The message alone " +
			"names the first two, and the " +
			"validation is shown if the user may get the policy, or if -f has it.\n\n" +
			"--cost needs no object. It shows which policies are evaluated together, in the batch of a call, and why others " +
			"are evaluated alone, which costs more.",
		Example: "  kubectl ostiary explain require-team-label -f policy.yaml --object pod.yaml\n" +
			"  kubectl ostiary explain -f policy.yaml --object review.yaml -o json\n" +
			"  kubectl ostiary explain pod/web-0 -n shop\n" +
			"  kubectl ostiary explain pod/web-0 require-team-label -n shop\n" +
			"  kubectl ostiary explain --cost --from-cluster",
		RunE: func(c *cobra.Command, names []string) error {
			if run.cost {
				return run.showCosts(c.Context(), names)
			}
			if run.denial == "" {
				return run.run(c.Context(), names)
			}
			if len(names) > 0 || run.object != "" {
				return errors.New("--denial explains a message: remove the other arguments and --object")
			}
			return run.explainDenial(c.Context())
		},
	}
	run.AddVersion(c)
	run.AddUser(c)
	run.AddSources(c)
	run.At.AddTime(c.Flags())
	c.Flags().StringVar(&run.object, "object", "", "file with the object of the request, or with an AdmissionReview")
	c.Flags().StringVar(&run.old, "old", "", "file with the stored object of an update")
	c.Flags().BoolVar(&run.deleted, "delete", false, "explain the deletion of the object")
	c.Flags().StringVar(&run.denial, "denial", "", "error message of a denied request, to find its policy, binding and validation")
	c.Flags().BoolVar(&run.all, "all", false, "of an object of the cluster, also show the policies that do not match it")
	c.Flags().BoolVar(&run.cost, "cost", false,
		"show which policies are evaluated in the batch of a call, and why others are not")
	c.Flags().StringVar(&run.subresource, "subresource", "", "subresource of the request")
	c.Flags().StringVar(&run.resource, "resource", "", "resource that has the subresource, such as deployments.apps")
	o.AddFormat(c, output.Wide)
	c.ValidArgsFunction = run.completeArguments
	return c
}

func (c *command) run(ctx context.Context, args []string) error {
	stored, names, err := c.target(args)
	if err != nil {
		return err
	}
	s, err := c.Setting(ctx, c.In, c.ErrOut, policy.NewTracingCompiler)
	if err != nil {
		return err
	}
	all := len(names) == 0
	if names, err = inputs.ChoosePolicies(s.Engine, names); err != nil {
		return err
	}
	return s.Skipped.Result(c.show(ctx, s, stored, names, all))
}

// show explains a request, or the object of the cluster that is named.
func (c *command) show(ctx context.Context, s *inputs.Setting, stored string, names []string, all bool) error {
	var e *Explanation
	var err error
	if stored != "" {
		e, err = c.stored(ctx, s, stored, names)
	} else {
		e, err = c.explain(ctx, s, names)
	}
	switch {
	case err != nil:
		return err
	case !c.IsTable():
		return c.Print(e)
	case stored != "" && all:
		return c.writeSummary(e)
	}
	return c.write(e)
}

// target returns the object of the cluster and the policies that the arguments name.
func (c *command) target(args []string) (stored string, policies []string, err error) {
	for _, arg := range args {
		switch {
		case !strings.Contains(arg, "/"):
			policies = append(policies, arg)
		case stored != "":
			return "", nil, fmt.Errorf("%q and %q are two objects: name one", stored, arg)
		default:
			stored = arg
		}
	}
	switch {
	case stored == "" && c.object == "":
		return "", nil, errors.New("there is no object to explain: name a file with --object, or an object of the cluster as TYPE/NAME")
	case stored != "" && c.object+c.old+c.subresource+c.resource != "":
		return "", nil, fmt.Errorf("%q is an object of the cluster: remove --object, --old, --subresource and --resource", stored)
	}
	c.FromCluster = c.FromCluster || stored != ""
	return stored, policies, nil
}

func (c *command) explain(ctx context.Context, s *inputs.Setting, names []string) (*Explanation, error) {
	request, err := c.request(ctx, s)
	if err != nil {
		return nil, err
	}
	return Explain(ctx, s.Engine, s.World, request, names)
}

func (c *command) request(ctx context.Context, s *inputs.Setting) (*admissionv1.AdmissionRequest, error) {
	object, err := c.single(ctx, c.object)
	if err != nil {
		return nil, err
	}
	if object.Kind == "AdmissionReview" && object.GroupVersionKind().Group == admissionv1.GroupName {
		return review(object)
	}
	var old *load.Object
	if c.old != "" {
		if old, err = c.single(ctx, c.old); err != nil {
			return nil, err
		}
	}
	if c.deleted {
		object, old = nil, object
	}
	return s.Engine.APIs.NewRequest(object, old, offline.RequestOptions{User: s.User, Subresource: c.subresource, Resource: c.resource})
}

// single reads a file with one object.
func (c *command) single(ctx context.Context, path string) (*load.Object, error) {
	objects, err := load.Objects(ctx, []string{path}, load.Options{Stdin: c.In, AllowRemote: c.AllowRemote})
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s: want one object, got %d", path, len(objects))
	}
	return &objects[0], nil
}

// review returns the request of an AdmissionReview.
func review(o *load.Object) (*admissionv1.AdmissionRequest, error) {
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(o.Raw, &out); err != nil {
		return nil, o.Errorf("", "not an AdmissionReview: %v", err)
	}
	if out.Request == nil {
		return nil, o.Errorf("", "the AdmissionReview has no request")
	}
	if out.Request.DryRun == nil {
		out.Request.DryRun = new(bool)
	}
	return out.Request, nil
}

// write writes an explanation as a tree.
func (c *command) write(e *Explanation) error {
	style := output.Colored(c.Out)
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", output.Printable(e.Request))
	for _, p := range e.Policies {
		fmt.Fprintf(&out, "\n%s%s: %s\n", p.Policy, onOperation(p.Operation), output.PaintAs(style, string(p.Decision), string(p.Decision)))
		for _, why := range p.Why {
			fmt.Fprintf(&out, "  because %s\n", output.Printable(strings.TrimPrefix(why, p.Policy+" ")))
		}
		for _, x := range p.Exceptions {
			fmt.Fprintf(&out, "  exception %s from %s: %s\n", x.Exception, label(x.Validation, x.Template, false), output.Printable(x.Result))
		}
		for _, l := range p.Lookups {
			fmt.Fprintf(&out, "  lookup %s\n", output.Printable(l.String()))
		}
		for _, b := range p.Bindings {
			name := b.Binding
			if name == "" {
				name = "(default)"
			}
			if b.Param != "" {
				name += " with param " + b.Param
			}
			if b.Template != "" {
				name += " on the Pod of " + b.Template
			}
			fmt.Fprintf(&out, "  binding %s: %s\n", name, output.Printable(b.Result))
		}
		for _, part := range p.Parts {
			times := ""
			if part.Times > 1 {
				times = fmt.Sprintf(", evaluated %d times", part.Times)
			}
			fmt.Fprintf(&out, "  %s (cost %d%s)\n", label(part.Field, part.Validation, part.Stored), part.Cost, times)
			writeNode(&out, part.Tree, 2, style)
		}
		if len(p.Parts) > 0 {
			fmt.Fprintf(&out, "  cost %d of %d\n", p.Cost, p.Budget)
		}
	}
	if _, err := fmt.Fprint(c.Out, output.Wrap(c.Out, out.String())); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}
	if e.Pods == nil {
		return nil
	}
	_, _ = fmt.Fprintln(c.Out) // the next line returns the error
	return c.write(e.Pods)
}

// writeNode writes a part, with its value, above those that it consists of.
func writeNode(out *strings.Builder, n *Node, depth int, style output.Style) {
	value := " => " + n.Value
	switch {
	case n.Value == "" && n.value != nil:
		value = ""
	case n.Value == "":
		value += output.Paint(style, output.Faint, "not evaluated")
	}
	fmt.Fprintf(out, "%s%s%s\n", strings.Repeat("  ", depth), output.Printable(strings.Join(strings.Fields(n.Text), " ")), value)
	for _, c := range n.Children {
		writeNode(out, c, depth+1, style)
	}
}
