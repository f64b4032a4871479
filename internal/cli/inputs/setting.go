package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Setting has what evaluations need, of files or of files and a cluster.
type Setting struct {
	// Input is what the files contain, with the policies of the cluster.
	*offline.Input
	Engine *offline.Engine
	World  *offline.World
	// User sends the requests.
	User authenticationv1.UserInfo
	// Cluster is nil without one.
	Cluster *connect.Cluster
	// Skipped has what is left out.
	Skipped *output.Skipped
}

// Setting reads the files and, if the flags say so, the cluster. It writes on notes what it
// leaves out.
func (f *Flags) Setting(ctx context.Context, stdin io.Reader, notes io.Writer, compiler func(policy.Engine) *policy.Compiler) (*Setting, error) {
	if len(f.Files) == 0 && !f.FromCluster {
		return nil, errors.New("no policy is given: name its file with -f, or read those of a cluster with --from-cluster")
	}
	if name := f.connection.Given(); name != "" && !f.FromCluster {
		return nil, fmt.Errorf("--%s needs --from-cluster", name)
	}
	s := &Setting{User: f.UserInfo(), Skipped: output.NewSkipped(notes)}
	var err error
	if s.Input, err = f.Load(ctx, stdin, s.Skipped); err != nil {
		return nil, err
	}
	if f.FromCluster {
		err = f.connected(ctx, s, notes, compiler)
	} else {
		err = f.unconnected(s, compiler)
	}
	if err != nil {
		return nil, err
	}
	if !f.At.IsZero() {
		s.World.SetTime(f.At.Time)
	}
	s.World.AddExceptions(s.Exceptions)
	for _, x := range s.World.Inactive(s.Exceptions, s.Engine) {
		_, _ = fmt.Fprintln(notes, output.Printable(fmt.Sprintf("the exception %s has no effect: %s", x.Source.String(), x.Message)))
	}
	if len(s.Engine.Names()) == 0 && !f.FromCluster {
		return nil, s.Skipped.Instead(NoPolicyError(f.Files))
	}
	s.Skipped.Write()
	return s, nil
}

// unconnected completes a setting without a cluster.
func (f *Flags) unconnected(s *Setting, compiler func(policy.Engine) *policy.Compiler) error {
	apis, err := offline.NewAPIs(f.Kubernetes.Engine, s.Definitions)
	if err != nil {
		return err
	}
	if err := f.ReplaceActions(s.Policies); err != nil {
		return err
	}
	apis.DefaultNamespace = f.connection.GivenNamespace()
	s.World = offline.NewWorld(apis, s.Namespaces, s.Objects, offline.Answers(nil))
	s.Engine, err = NewEngine(s.Policies, compiler(f.Kubernetes.Engine), apis, s.Skipped)
	return err
}

// connected completes a setting with a cluster.
func (f *Flags) connected(ctx context.Context, s *Setting, notes io.Writer, compiler func(policy.Engine) *policy.Compiler) error {
	config, err := f.connection.Config()
	if err != nil {
		return err
	}
	if s.Cluster, err = connect.NewCluster(ctx, config); err != nil {
		return err
	}
	note := func(err error) { _, _ = fmt.Fprintln(notes, output.Printable(err.Error())) }
	dump, err := cluster.FetchInstallation(ctx, config, func(err error) {
		note(fmt.Errorf("the namespace of Ostiary and the exempt namespaces are not known: %w", err))
	})
	if err != nil {
		return err
	}
	if err := errors.Join(s.addPolicies(ctx), s.addExceptions(ctx, note), f.ReplaceActions(s.Policies)); err != nil {
		return err
	}
	apis, err := offline.NewAPIsOf(s.Cluster.Resources, func(kind schema.GroupVersionKind) managedfields.TypeConverter { return s.Cluster.Schema(ctx, kind) }, s.Definitions)
	if err != nil {
		return err
	}
	if apis.DefaultNamespace, err = f.connection.Namespace(); err != nil {
		return err
	}
	version := s.Cluster.Engine
	if f.Kubernetes.given {
		version = f.Kubernetes.Engine
	}
	s.Engine, err = NewEngine(s.Policies, compiler(version), apis, s.Skipped, exemptIn(dump)...)
	if err != nil {
		return err
	}
	for _, invalid := range s.Engine.Invalid {
		for _, problem := range invalid.Problems {
			if invalid.Stored {
				note(fmt.Errorf("not evaluated, because Ostiary does not enforce it either: %w", problem))
			}
		}
	}
	return f.addAccess(ctx, s, apis)
}

// addPolicies adds the policies of the cluster that the files do not replace.
func (s *Setting) addPolicies(ctx context.Context) error {
	const resource = "webhookpolicies"
	found, err := s.Cluster.List(ctx, v1alpha1.GroupVersion.WithResource(resource), "", "")
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for _, u := range found {
		if slices.ContainsFunc(s.Policies, func(p offline.Policy) bool { return p.Name == u.GetName() }) {
			continue
		}
		for _, field := range [][]string{{"status"}, {"metadata", "managedFields"}} {
			unstructured.RemoveNestedField(u.Object, field...) // of a later version of Ostiary
		}
		raw, err := u.MarshalJSON()
		if err != nil {
			return fmt.Errorf("reading the WebhookPolicy %q: %w", u.GetName(), err)
		}
		source, err := load.FromJSON("cluster:"+resource+"/"+u.GetName(), raw)
		if err != nil {
			return err
		}
		p := &v1alpha1.WebhookPolicy{}
		if err := source.Decode(p); err != nil {
			return fmt.Errorf("%w; it may be of a later version of Ostiary: upgrade kubectl-ostiary", err)
		}
		s.Policies = append(s.Policies, offline.Policy{WebhookPolicy: p, Source: *source, Stored: true, Optional: true})
	}
	if len(s.Policies) == 0 {
		return errors.New("neither the cluster nor the files have a WebhookPolicy: name a file with -f")
	}
	return nil
}

// addExceptions adds the exceptions of the cluster that the files do not replace and that Ostiary
// applies.
func (s *Setting) addExceptions(ctx context.Context, note func(error)) error {
	for _, resource := range []string{"webhookpolicyexceptions", "clusterwebhookpolicyexceptions"} {
		found, err := s.Cluster.List(ctx, v1alpha1.GroupVersion.WithResource(resource), "", "")
		switch {
		case apierrors.IsNotFound(err): // of an earlier version of Ostiary
			continue
		case apierrors.IsForbidden(err):
			note(fmt.Errorf("the exceptions of the cluster are not known, so objects that they cover are denied here: %w", err))
			continue
		case err != nil:
			return err
		}
		for _, u := range found {
			x, err := exceptionOf(resource, u)
			if err != nil {
				return err
			}
			active := meta.FindStatusCondition(x.GetStatus().Conditions, v1alpha1.ConditionActive)
			if active != nil && active.Status == metav1.ConditionFalse && !slices.Contains(recomputed(), active.Reason) {
				note(fmt.Errorf("the exception %s has no effect: %s", x.Source.String(), active.Message))
				continue
			}
			s.Exceptions = append(s.Exceptions, x)
		}
	}
	return nil
}

// recomputed are the reasons that depend on the time or the policies, which can be others here.
func recomputed() []string {
	return []string{
		exceptions.ReasonExpired, exceptions.ReasonPolicyNotFound, exceptions.ReasonNotAllowed, exceptions.ReasonPolicyHasBackend,
		exceptions.ReasonNoExpirationTime, exceptions.ReasonExceedsMaxDuration, exceptions.ReasonUnknownValidation,
		exceptions.ReasonInvalidSelector, exceptions.ReasonInvalidCondition,
	}
}

func exceptionOf(resource string, u *unstructured.Unstructured) (offline.Exception, error) {
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	raw, err := u.MarshalJSON()
	if err != nil {
		return offline.Exception{}, fmt.Errorf("reading the exception %q: %w", u.GetName(), err)
	}
	source, err := load.FromJSON("cluster:"+resource+"/"+u.GetName(), raw)
	if err != nil {
		return offline.Exception{}, err
	}
	return offline.NewException(*source)
}

// exemptIn returns the namespaces that an installation exempts from policies: its own and
// those of the manager's flag; nil if there is no installation.
func exemptIn(dump *doctor.Dump) []string {
	var out []string
	for i := range dump.Leases {
		if dump.Leases[i].Name == doctor.LeaderLease {
			out = []string{dump.Leases[i].Namespace}
		}
	}
	for i := range dump.Deployments {
		d := &dump.Deployments[i]
		if d.Labels["app.kubernetes.io/name"] != "ostiary" {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.ParseErrorsAllowlist.UnknownFlags = true
			more := flags.StringSlice("exempt-namespaces", nil, "")
			if flags.Parse(c.Args) == nil {
				out = append(out, *more...)
			}
		}
	}
	return out
}

// addAccess adds the user, and what evaluations read from the cluster.
func (f *Flags) addAccess(ctx context.Context, s *Setting, apis *offline.APIs) error {
	if f.User == "" {
		current, err := s.Cluster.User(ctx)
		if err != nil {
			return err
		}
		current.Groups = append(current.Groups, f.Groups...)
		s.User = current
	}
	asked, err := s.Cluster.Authorizer()
	s.World = offline.NewWorld(apis, s.Namespaces, s.Objects, asked)
	s.World.AddCluster(s.Cluster)
	return err
}
