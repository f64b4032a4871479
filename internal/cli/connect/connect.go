// Package connect connects commands of kubectl-ostiary to a cluster, with the flags of
// kubectl.
package connect

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags are the flags that choose a cluster and a user.
type Flags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

// AddFlags adds the flags of kubectl to those of a command: --kubeconfig, --context and the others.
func AddFlags(flags *pflag.FlagSet) *Flags {
	f := &Flags{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	flags.StringVar(&f.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file; default is that of kubectl")
	clientcmd.BindOverrideFlags(&f.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	return f
}

// Config returns the configuration of clients. They send at most 50 requests per second.
func (f *Flags) Config() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules, &f.overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	return config, nil
}
