package exempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/violations"
	"github.com/ostiary/ostiary/internal/policy"
)

// NewBaselineCommand returns the command baseline.
func NewBaselineCommand(o *output.Options) *cobra.Command {
	run := &baseline{command: command{Options: o}, found: map[string]*covered{}}
	c := &cobra.Command{
		Use:   "baseline --policy POLICY --for DURATION --reason TEXT",
		Short: "Write an exception for each workload that violates a policy now",
		Long: "Write an exception for each workload that violates a policy now, for Git: the policy can then deny everything new, while the " +
			"list shrinks.\n\n" +
			"The command lists the objects that you may read, and evaluates the policy as Ostiary's audit does. Objects that have a " +
			"controller with a pod template, such as a Deployment, share its exception. The command writes nothing if objects could not " +
			"be read or evaluated, because the list would be incomplete.",
		Example: "  kubectl ostiary baseline --policy require-team-label --for 2160h --reason PLAT-7",
		Args:    output.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	run.addFlags(c)
	c.Flags().Lookup("namespace").Usage = "namespace of the objects; default is all namespaces, and objects without one"
	return c
}

// baseline collects what violates a policy.
type baseline struct {
	command
	cluster *connect.Cluster
	found   map[string]*covered // by workload
	failed  []string            // objects that no exception can cover
}

// covered is a workload, or an object without one, with what it has to be excepted from.
type covered struct {
	target
	validations []string
	more        []v1alpha1.ExceptionMatch
}

func (b *baseline) run(ctx context.Context) error {
	var err error
	if b.cluster, err = b.connect(ctx); err != nil {
		return err
	}
	spec, err := b.policyOf(ctx, b.cluster)
	if err != nil {
		return err
	}
	found := func(r audit.Resource, u *unstructured.Unstructured, got audit.Result) error {
		return b.add(ctx, target{Unstructured: u, resource: r.GroupResource()}, got)
	}
	missing, err := violations.Scan(ctx, b.Options, b.Flags, b.policy, found)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return fmt.Errorf("the exceptions would be incomplete, so none is written: %s: %s", missing[0].Subject, missing[0].Reason)
	case len(b.failed) > 0:
		return fmt.Errorf("the exceptions would be incomplete, so none is written: the policy fails with an error for %s", output.Some(b.failed))
	case len(b.found) == 0:
		_, err := fmt.Fprintln(b.ErrOut, "no object violates the policy")
		return err
	}
	all := b.exceptions(spec)
	for _, x := range all {
		if err := check(x, spec, metav1.Now().Time); err != nil {
			return fmt.Errorf("%s: %w", x.GetName(), err)
		}
	}
	_, _ = fmt.Fprintln(b.ErrOut, output.Count(len(all), "exception", "exceptions"))
	return b.write(all)
}

// add adds a violation to its workload.
func (b *baseline) add(ctx context.Context, t target, got audit.Result) error {
	if got.Decision == policy.DecisionError {
		b.failed = append(b.failed, t.GetNamespace()+"/"+t.GetName())
		return nil
	}
	workload, err := b.workload(ctx, t)
	if err != nil {
		return err
	}
	key := strings.Join([]string{workload.GetNamespace(), workload.resource.String(), workload.GetName()}, "/")
	c := b.found[key]
	if c == nil {
		c = &covered{target: workload}
		b.found[key] = c
	}
	if workload.resource != t.resource && t.resource.Resource != "pods" {
		c.addEntry(bySelector(t.resource, workload.templateLabels()))
	}
	for _, v := range got.Violations {
		name := v.Validation
		if name == "" {
			name = v1alpha1.AllValidations
		}
		if v.Exception == nil && !slices.Contains(c.validations, name) {
			c.validations = append(c.validations, name)
		}
	}
	return nil
}

func (c *covered) addEntry(m v1alpha1.ExceptionMatch) {
	same := func(o v1alpha1.ExceptionMatch) bool { return o.Group == m.Group && o.Resources[0] == m.Resources[0] }
	if !slices.ContainsFunc(c.more, same) {
		c.more = append(c.more, m)
	}
}

// maxControllers is the number of controllers above an object that are read, such as a ReplicaSet and
// its Deployment. Clients can write any owner reference.
const maxControllers = 5

// workload returns the last controller of an object that has a pod template with labels, or the
// object. Labels select what it creates, whose names change.
func (b *baseline) workload(ctx context.Context, t target) (target, error) {
	out := t
	for range maxControllers { // owner references can form a circle
		owner := metav1.GetControllerOf(out)
		if owner == nil {
			break
		}
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil {
			return out, nil //nolint:nilerr // such an owner does not exist
		}
		resource := strings.ToLower(owner.Kind)
		if gv.Group != "" {
			resource += "." + gv.Group
		}
		found, err := find(ctx, b.cluster, resource, t.GetNamespace(), owner.Name)
		if err != nil {
			return out, errors.Join(fmt.Errorf("reading the controller of %s %s", t.GetKind(), t.GetName()), err)
		}
		if found.GetUID() != owner.UID || len(found.templateLabels()) == 0 {
			return out, nil
		}
		out = *found
	}
	return out, nil
}

// exceptions returns the exceptions, sorted by namespace and name.
func (b *baseline) exceptions(spec *v1alpha1.WebhookPolicySpec) []v1alpha1.Exception {
	out := make([]v1alpha1.Exception, 0, len(b.found))
	for _, c := range b.found {
		slices.Sort(c.validations)
		out = append(out, c.exception(b.terms(spec, c.validations), c.more...))
	}
	slices.SortFunc(out, func(x, y v1alpha1.Exception) int {
		return strings.Compare(x.GetNamespace()+"/"+x.GetName(), y.GetNamespace()+"/"+y.GetName())
	})
	return out
}
