// Package manager runs the manager of Ostiary with a control plane, as a process outside the
// cluster that the API server calls by URL.
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
	// Kubeconfig is the file with the manager's credentials; "" is that of the control
	// plane's admin, without an account for params.
	Kubeconfig string
	// Args are further flags.
	Args []string
}

// ports of the manager
const (
	webhookPort = iota
	healthPort
	metricsPort
	portCount
)

// MetricsURL returns where a manager serves metrics, without authentication.
func MetricsURL(running *controlplane.Running) string {
	return "http://" + loopback(running.Port(metricsPort)) + "/metrics"
}

// Start starts the manager and returns when it is ready. It keeps
// nothing, and dies with the process that started it.
func Start(ctx context.Context, cp *controlplane.ControlPlane, o Options) (*controlplane.Running, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("finding the manager: %w", err)
	}
	return cp.Run(ctx, controlplane.Program{
		Name: Name, Path: path, Ports: portCount,
		Args:   func(ports []int) []string { return append(o.flags(cp.Kubeconfig(), ports), o.Args...) },
		Probes: func(ports []int) []string { return []string{"http://" + loopback(ports[healthPort]) + "/readyz"} },
	})
}

func (o Options) flags(admin string, ports []int) []string {
	webhook := o.WebhookAddress
	if webhook == "" {
		webhook = loopback(ports[webhookPort])
	}
	flags := []string{
		"--webhook-address=" + webhook, "--webhook-url=https://" + webhook,
		"--health-address=" + loopback(ports[healthPort]),
		"--metrics-address=" + loopback(ports[metricsPort]), "--metrics-auth=false",
		"--drain-min=100ms", // no other replica takes over
	}
	if o.Kubeconfig != "" {
		return append(flags, "--kubeconfig="+o.Kubeconfig)
	}
	return append(flags, "--kubeconfig="+admin, "--params-account=") // no role grants kinds of params
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
