// Package manager runs Ostiary's manager beside a control plane, as a process
// outside of the cluster that the API server reaches by URL.
package manager

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/ostiary/ostiary/test/controlplane"
)

// Name is the manager's among the programs of a control plane, for its log.
const Name = "ostiary"

// Options say how to run the manager.
type Options struct {
	// Path is the program.
	Path string
	// WebhookAddress is where it answers calls, host:port; "" is a free port.
	WebhookAddress string
	// Args are further flags.
	Args []string
}

// Start starts the manager and returns when it is ready. It acts as the control
// plane's admin, keeps nothing, and dies with the process that started it.
func Start(ctx context.Context, cp *controlplane.ControlPlane, o Options) (*controlplane.Running, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("finding the manager: %w", err)
	}
	return cp.Run(ctx, controlplane.Program{
		Name: Name, Path: path, Ports: 2,
		Args:   func(ports []int) []string { return append(o.flags(cp.Kubeconfig(), ports), o.Args...) },
		Probes: func(ports []int) []string { return []string{"http://" + loopback(ports[1]) + "/readyz"} },
	})
}

func (o Options) flags(kubeconfig string, ports []int) []string {
	webhook := o.WebhookAddress
	if webhook == "" {
		webhook = loopback(ports[0])
	}
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--webhook-address=" + webhook, "--webhook-url=https://" + webhook,
		"--health-address=" + loopback(ports[1]), "--metrics-address=0",
		"--drain-min=100ms", // no other replica takes over
		"--params-account=", // nobody has been granted kinds of params
	}
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
