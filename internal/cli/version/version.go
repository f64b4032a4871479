// Package version is the command version.
package version

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/policy"
)

// timeout is how long each request to the cluster may take.
const timeout = 5 * time.Second

// Info is the result of the command.
type Info struct {
	// Client is the version of kubectl-ostiary.
	Client string `json:"client"`
	Go     string `json:"go"`
	// Platform is the operating system and the architecture.
	Platform string `json:"platform"`
	// Kubernetes are the versions whose evaluation this program reproduces.
	Kubernetes []string `json:"kubernetes"`
	// Manager is the version of Ostiary in the cluster: the tag of its image.
	Manager string `json:"manager,omitempty"`
	// Image is that of the manager, and Namespace where it runs.
	Image     string `json:"image,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Server is the version of the API server.
	Server string `json:"server,omitempty"`
	// Compatibility says whether these versions work together.
	Compatibility []string `json:"compatibility,omitempty"`
}

type command struct {
	*output.Options
	connection *connect.Flags
	client     bool
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, Ostiary and the API server",
		Long: "Print the versions of this program, of Ostiary in the cluster of the current context, and of the API server, and whether they " +
			"work together.\n\nWithout a cluster, it prints the version of this program only.",
		Example: "  kubectl ostiary version\n" +
			"  kubectl ostiary version --client -o yaml",
		Args: output.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return run.run(c.Context()) },
	}
	c.Flags().BoolVar(&run.client, "client", false, "print the version of this program only")
	run.connection = connect.AddFlags(c.Flags())
	o.AddFormat(c)
	return c
}

func (c *command) run(ctx context.Context) error {
	info := &Info{Client: c.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for e := policy.OldestEngine; e <= policy.LatestEngine; e++ {
		info.Kubernetes = append(info.Kubernetes, e.String())
	}
	if !c.client {
		if err := info.connect(ctx, c); err != nil {
			_, _ = fmt.Fprintln(c.ErrOut, "not shown: the versions in the cluster:", err)
		}
	}
	if c.Format != output.Table {
		return c.Print(info)
	}
	return info.write(c)
}

// connect adds the versions in the cluster.
func (i *Info) connect(ctx context.Context, c *command) error {
	config, err := c.connection.Config()
	if err != nil {
		return err
	}
	if config.Timeout == 0 {
		config.Timeout = timeout
	}
	return i.read(ctx, config, func(err error) { _, _ = fmt.Fprintln(c.ErrOut, "not shown: the version of Ostiary:", err) })
}

func (i *Info) read(ctx context.Context, config *rest.Config, skipped func(error)) error {
	server, err := connect.ServerVersion(ctx, config)
	if err != nil {
		return err
	}
	i.Server = server.GitVersion
	i.Compatibility = append(i.Compatibility, supported(server.GitVersion))
	dump, err := cluster.FetchInstallation(ctx, config, skipped)
	if err != nil {
		return err
	}
	if o := dump.Ostiary(time.Now()); o.Namespace != "" {
		i.Namespace = o.Namespace
		i.Image, i.Manager = manager(dump)
		i.Compatibility = append(i.Compatibility, equal(i.Client, i.Manager))
	}
	return nil
}

// manager returns the image of the manager, and its tag.
func manager(dump *doctor.Dump) (image, tag string) {
	for i := range dump.Deployments {
		d := &dump.Deployments[i]
		if d.Labels["app.kubernetes.io/name"] != "ostiary" {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			image, _, _ = strings.Cut(c.Image, "@")
			if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
				tag = image[at+1:]
			}
			return c.Image, tag
		}
	}
	return "", ""
}

// supported says how a version of Kubernetes is supported: docs/operations/kubernetes-versions.md.
func supported(server string) string {
	v, err := utilversion.ParseGeneric(server)
	if err != nil {
		return fmt.Sprintf("the API server reports the version %q, which is none of Kubernetes", server)
	}
	oldest, latest := utilversion.MajorMinor(1, uint(policy.OldestEngine)), utilversion.MajorMinor(1, uint(policy.LatestEngine))
	minor := utilversion.MajorMinor(v.Major(), v.Minor())
	switch {
	case minor.LessThan(oldest):
		return fmt.Sprintf("Kubernetes %s is not supported: Ostiary evaluates like %s; upgrade the cluster", minor, policy.OldestEngine)
	case latest.LessThan(minor):
		return fmt.Sprintf("Kubernetes %s is later than this program: it evaluates like %s; look for a later version of Ostiary", minor, policy.LatestEngine)
	}
	return fmt.Sprintf("Kubernetes %s is supported", minor)
}

// equal says whether the client has the version of the manager.
func equal(client, manager string) string {
	switch {
	case manager == "":
		return "the version of Ostiary in the cluster is not known, because its image has no tag"
	case strings.TrimPrefix(client, "v") == strings.TrimPrefix(manager, "v"):
		return "kubectl-ostiary and Ostiary have the same version"
	}
	return fmt.Sprintf("kubectl-ostiary %s and Ostiary %s differ: they can decide differently; use equal versions", client, manager)
}

func (i *Info) write(c *command) error {
	rows := [][]string{{"kubectl-ostiary", i.Client, fmt.Sprintf("%s, for Kubernetes %s to %s", i.Platform, policy.OldestEngine, policy.LatestEngine)}}
	if i.Namespace != "" {
		rows = append(rows, []string{"Ostiary", orUnknown(i.Manager), fmt.Sprintf("%s in namespace %s", orUnknown(i.Image), i.Namespace)})
	}
	if i.Server != "" {
		rows = append(rows, []string{"API server", i.Server, ""})
	}
	if err := output.WriteTable(c.Out, []string{"COMPONENT", "VERSION", "DETAILS"}, rows); err != nil {
		return err
	}
	if len(i.Compatibility) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, text := range i.Compatibility {
		lines.WriteString("\n" + output.Printable(text))
	}
	_, err := fmt.Fprintln(c.Out, lines.String())
	return err
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}
