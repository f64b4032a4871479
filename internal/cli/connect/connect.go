// Package connect connects commands of kubectl-ostiary to a cluster, with the flags of
// kubectl.
package connect

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags are the flags that choose a cluster and a user.
type Flags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	flags     *pflag.FlagSet
}

// FlagAnnotation marks the flags that choose a cluster and a user, which few users need, in the help of commands.
const FlagAnnotation = "kubectl-ostiary/connection"

// AddFlags adds the flags of kubectl to those of a command: --kubeconfig, --context and the
// others. A command with a flag --user of its own has none for a user of the kubeconfig.
func AddFlags(flags *pflag.FlagSet) *Flags {
	f := &Flags{rules: clientcmd.NewDefaultClientConfigLoadingRules(), flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	f.flags.StringVar(&f.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file; default is that of kubectl")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	if flags.Lookup(clientcmd.FlagAuthInfoName) != nil {
		names.ContextOverrideFlags.AuthInfoName.LongName = ""
	}
	clientcmd.BindOverrideFlags(&f.overrides, f.flags, names)
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != clientcmd.FlagNamespace {
			flag.Annotations = map[string][]string{FlagAnnotation: {"true"}}
		}
	})
	flags.AddFlagSet(f.flags)
	return f
}

// Given returns the name of a flag that the user has set, except for the namespace; "" if
// there is none.
func (f *Flags) Given() (name string) {
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Name != clientcmd.FlagNamespace {
			name = flag.Name
		}
	})
	return name
}

// Config returns the configuration of clients. They send at most 50 requests per second.
func (f *Flags) Config() (*rest.Config, error) {
	config, err := f.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("reading the kubeconfig: it names no cluster: set KUBECONFIG, or name a file with --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// Namespace returns the namespace of the flag; otherwise that of the context.
func (f *Flags) Namespace() (string, error) {
	namespace, _, err := f.loader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}

// GivenNamespace returns the namespace of the flag.
func (f *Flags) GivenNamespace() string { return f.overrides.Context.Namespace }

func (f *Flags) loader() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules, &f.overrides)
}
