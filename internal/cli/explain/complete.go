package explain

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/connect"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
)

// completionTimeout is how long a shell waits for the cluster.
const completionTimeout = 5 * time.Second

// completeArguments completes TYPE/ with the types of the API server, TYPE/NAME with its objects, and POLICY with the
// policies of -f, or else those of the cluster. Without an answer there is no completion.
func (c *command) completeArguments(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	if len(c.Files) > 0 && !strings.Contains(begun, "/") {
		return beginningWith(begun, c.policiesOfFiles(ctx)), cobra.ShellCompDirectiveNoFileComp
	}
	config, err := c.Config()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, err := connect.NewCluster(ctx, config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if resource, _, ok := strings.Cut(begun, "/"); ok {
		namespace, err := c.Namespace()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, name := range cluster.Names(ctx, resource, namespace) {
			names = append(names, resource+"/"+name)
		}
		return beginningWith(begun, names), cobra.ShellCompDirectiveNoFileComp
	}
	found := beginningWith(begun, cluster.Names(ctx, "webhookpolicies."+v1alpha1.GroupName, ""))
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") }) {
		return found, cobra.ShellCompDirectiveNoFileComp // the object is named
	}
	for _, resource := range beginningWith(begun, cluster.Types()) {
		found = append(found, resource+"/")
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// policiesOfFiles returns the names of the policies of -f. It does not read stdin, which is the terminal.
func (c *command) policiesOfFiles(ctx context.Context) (names []string) {
	c.Files = slices.DeleteFunc(c.Files, func(file string) bool { return file == load.Stdin })
	in, err := c.Load(ctx, c.In, output.NewSkipped(c.ErrOut))
	if err != nil {
		return nil
	}
	for _, p := range in.Policies {
		names = append(names, p.Name)
	}
	return names
}

func beginningWith(begun string, names []string) (out []string) {
	for _, name := range names {
		if strings.HasPrefix(name, begun) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
