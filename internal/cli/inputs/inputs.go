// Package inputs has the flags of commands that evaluate policies from files.
package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/nearest"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Flags are the flags.
type Flags struct {
	Files      []string
	Kubernetes Version
	User       string
	Groups     []string
	// Action replaces the validationActions of all bindings; "" does not.
	Action string
	// FromCluster reads policies, and what they read, from a cluster too.
	FromCluster bool
	// AllowRemote permits kustomizations to fetch files and repositories.
	AllowRemote bool

	// At is the time of the evaluation; zero is now.
	At Time

	connection *connect.Flags // nil for commands that read files only
}

// Version is a flag for a Kubernetes version.
type Version struct {
	policy.Engine
	given bool
}

// Set implements pflag.Value.
func (v *Version) Set(text string) error {
	minor, ok := strings.CutPrefix(strings.TrimPrefix(text, "v"), "1.")
	n, err := strconv.Atoi(minor)
	if !ok || err != nil || policy.Engine(n) < policy.OldestEngine || policy.Engine(n) > policy.LatestEngine {
		return fmt.Errorf("must be a version from %s to %s", policy.OldestEngine, policy.LatestEngine)
	}
	v.Engine, v.given = policy.Engine(n), true
	return nil
}

// Type implements pflag.Value.
func (v *Version) Type() string { return "version" }

// AddFiles adds the flag for files, which is required.
func (f *Flags) AddFiles(c *cobra.Command) {
	f.addFiles(c)
	_ = c.MarkFlagRequired("filename") // the flag exists
}

func (f *Flags) addFiles(c *cobra.Command) {
	c.Flags().StringSliceVarP(&f.Files, "filename", "f", nil, "files, directories, kustomizations or Helm charts with policies and objects; - is stdin")
	AddAllowRemote(c.Flags(), &f.AllowRemote)
}

// AddAllowRemote adds the flag that permits kustomizations to fetch.
func AddAllowRemote(f *pflag.FlagSet, allow *bool) {
	f.BoolVar(allow, "allow-remote", false, "let kustomizations fetch files and repositories with HTTP and git")
}

// AddSources adds the flag for files, and those for a cluster. It follows AddUser.
func (f *Flags) AddSources(c *cobra.Command) {
	f.addFiles(c)
	c.Flags().BoolVar(&f.FromCluster, "from-cluster", false, "read policies, params, Namespaces and schemas from the cluster of the current context; those of -f replace them")
	f.connection = connect.AddFlags(c.Flags())
	c.Flags().Lookup("namespace").Usage = "namespace of objects that state none; default is that of the context with --from-cluster, otherwise \"default\""
}

// AddCluster adds the flags for a cluster, which a command always reads, and for files whose
// policies replace those of the cluster.
func (f *Flags) AddCluster(c *cobra.Command) {
	f.addFiles(c)
	f.FromCluster, f.connection = true, connect.AddFlags(c.Flags())
}

// GivenNamespace returns the namespace of the flag; "" without it.
func (f *Flags) GivenNamespace() string { return f.connection.GivenNamespace() }

// ChoosePolicies returns the names of policies of an engine, by default of all.
func ChoosePolicies(engine *offline.Engine, names []string) ([]string, error) {
	all := engine.Names()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, UnknownPolicyError(name, all)
		}
	}
	return names, nil
}

// UnknownPolicyError means that none of the known policies has a name.
func UnknownPolicyError(name string, known []string) error {
	hint := ": correct its name, or name its file with -f"
	if similar := nearest.Name(name, slices.Values(known)); similar != "" {
		hint = fmt.Sprintf(", did you mean %q?", similar)
	}
	return fmt.Errorf("there is no policy %q%s", name, hint)
}

// AddAction adds the flag for the action of bindings.
func (f *Flags) AddAction(c *cobra.Command) {
	c.Flags().StringVar(&f.Action, "as-action", "", "evaluate all bindings as if they had this action: Deny, Warn or Audit")
	complete(c, "as-action", string(admissionregistrationv1.Deny), string(admissionregistrationv1.Warn),
		string(admissionregistrationv1.Audit))
}

// ReplaceActions sets the action of the flag in all bindings of policies.
func (f *Flags) ReplaceActions(policies []offline.Policy) error {
	action := admissionregistrationv1.ValidationAction(f.Action)
	switch action {
	case "":
		return nil
	case admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit:
	default:
		return fmt.Errorf("invalid argument %q for --as-action: want Deny, Warn or Audit", f.Action)
	}
	for _, p := range policies {
		if len(p.Spec.Bindings) == 0 && len(p.Spec.Validations) > 0 {
			p.Spec.Bindings = []v1alpha1.Binding{{Name: "as-action"}}
		}
		for i := range p.Spec.Bindings {
			p.Spec.Bindings[i].ValidationActions = []admissionregistrationv1.ValidationAction{action}
			p.Spec.Bindings[i].Rollout = nil
		}
	}
	return nil
}

// Time is a flag for a time.
type Time struct{ time.Time }

// Set implements pflag.Value.
func (t *Time) Set(text string) (err error) {
	if t.Time, err = time.Parse(time.RFC3339, text); err != nil {
		return errors.New("want a time such as 2027-03-01T00:00:00Z")
	}
	return nil
}

// OrNow returns the time, or the current one if it is not given.
func (t *Time) OrNow() time.Time {
	if t.IsZero() {
		return time.Now()
	}
	return t.Time
}

// String implements pflag.Value.
func (t *Time) String() string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// Type implements pflag.Value.
func (t *Time) Type() string { return "time" }

// AddTime adds the flag for the time.
func (t *Time) AddTime(f *pflag.FlagSet) {
	f.Var(t, "at", "time of the evaluation, which decides whether exceptions have ended; default is now")
}

// AddVersion adds the flag for the version.
func (f *Flags) AddVersion(c *cobra.Command) {
	f.Kubernetes.Engine = policy.LatestEngine
	c.Flags().Var(&f.Kubernetes, "kubernetes-version", "Kubernetes version of the API server to simulate")
	CompleteVersions(c)
}

// CompleteVersions completes the flag --kubernetes-version.
func CompleteVersions(c *cobra.Command) {
	var versions []string
	for e := policy.OldestEngine; e <= policy.LatestEngine; e++ {
		versions = append(versions, e.String())
	}
	complete(c, "kubernetes-version", versions...)
}

func complete(c *cobra.Command, flag string, values ...string) {
	// The flag exists and has no other completion.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// AddUser adds the flags for the user.
func (f *Flags) AddUser(c *cobra.Command) {
	c.Flags().StringVar(&f.User, "user", "", "user who sends the requests; default is "+offline.DefaultUser+", and with a cluster the user of the context")
	c.Flags().StringSliceVar(&f.Groups, "group", nil, "groups of the user, besides system:authenticated")
}

// Config returns the configuration of clients of the cluster that the flags choose.
func (f *Flags) Config() (*rest.Config, error) { return f.connection.Config() }

// Namespace returns the namespace that the flags choose.
func (f *Flags) Namespace() (string, error) { return f.connection.Namespace() }

// UserInfo returns the user.
func (f *Flags) UserInfo() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: f.User, Groups: f.Groups}
}

// Load reads the files.
func (f *Flags) Load(ctx context.Context, stdin io.Reader, skipped *output.Skipped) (*offline.Input, error) {
	objects, err := load.Objects(ctx, f.Files, load.Options{Stdin: stdin, AllowRemote: f.AllowRemote, Skip: skipped.Add})
	if err != nil {
		return nil, err
	}
	in, problems := offline.Divide(objects)
	for _, problem := range problems {
		skipped.Add(problem)
	}
	for i := range in.Policies {
		in.Policies[i].Optional = true
	}
	return in, nil
}

// NewEngine compiles policies, without those of files that are invalid.
func NewEngine(
	policies []offline.Policy,
	compiler *policy.Compiler,
	apis *offline.APIs,
	skipped *output.Skipped,
	exempt ...string,
) (*offline.Engine, error) {
	engine, err := offline.NewEngine(policies, compiler, apis, exempt...)
	if err != nil {
		return nil, err
	}
	for _, invalid := range engine.Invalid {
		for _, problem := range invalid.Problems {
			if !invalid.Stored {
				skipped.Add(problem)
			}
		}
	}
	return engine, nil
}

// NoPolicyError means that the files have no policy.
func NoPolicyError(files []string) error {
	return fmt.Errorf("%s: there is no WebhookPolicy: name its file with -f", strings.Join(files, ", "))
}
