// Package version is the command version.
package version

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/policy"
)

// Info is the result of the command.
type Info struct {
	// Client is the version of kubectl-ostiary.
	Client string `json:"client"`
	Go     string `json:"go"`
	// Platform is the operating system and the architecture.
	Platform string `json:"platform"`
	// Kubernetes are the versions whose evaluation this program reproduces.
	Kubernetes []string `json:"kubernetes"`
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program and the supported Kubernetes versions",
		Example: "  kubectl ostiary version -o yaml",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return run(o) },
	}
	o.AddFormat(c)
	return c
}

func run(o *output.Options) error {
	info := Info{Client: o.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for e := policy.OldestEngine; e <= policy.LatestEngine; e++ {
		info.Kubernetes = append(info.Kubernetes, e.String())
	}
	if o.Format != output.Table {
		return o.Print(info)
	}
	return output.WriteTable(o.Out, []string{"CLIENT", "PLATFORM", "KUBERNETES"}, [][]string{
		{info.Client, info.Platform, fmt.Sprintf("%s to %s", policy.OldestEngine, policy.LatestEngine)},
	})
}
