package controlplane

import (
	"context"
	"fmt"
)

func (cp *ControlPlane) describeAPIServer(i int, binary string, more ...string) *component {
	return &component{
		name: fmt.Sprintf("%s-%d", APIServer, i), binary: binary, ports: make([]int, 1),
		args: func(ports []int) []string {
			return append(apiServerArguments(cp.directory, cp.options, i, cp.etcdURLs(), ports[0]), more...)
		},
		probes: func(ports []int) []string {
			return []string{
				httpsURL(ports[0], "/readyz"),
				httpsURL(ports[0], "/api/v1/namespaces/kube-system"),
				httpsURL(ports[0], "/api/v1/namespaces/default"),
			}
		},
	}
}

// StopAPIServer ends API server i as a rolling update would: it finishes what it
// is doing, and is killed if that takes too long.
func (cp *ControlPlane) StopAPIServer(i int) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.check(i); err != nil {
		return fmt.Errorf("stopping an API server: %w", err)
	}
	return cp.apiServers[i].stop(gracePeriod)
}

// StartAPIServer starts API server i again, on the port that it had, and returns
// when it is ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context, i int) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.check(i); err != nil {
		return fmt.Errorf("starting an API server: %w", err)
	}
	c := cp.apiServers[i]
	if c.process != nil {
		return fmt.Errorf("starting %s: it was not stopped", c.name)
	}
	return cp.start(ctx, c)
}

// AddAPIServer starts one more API server on the same etcd, with further flags
// of its own, and returns its number when it is ready. The program may be one of
// another version; "" is that of the first API server.
func (cp *ControlPlane) AddAPIServer(ctx context.Context, program string, args ...string) (int, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.check(0); err != nil {
		return 0, fmt.Errorf("adding an API server: %w", err)
	}
	i := len(cp.apiServers)
	if i >= maxAPIServers {
		return 0, fmt.Errorf("adding an API server: there are %d already", i)
	}
	if program == "" {
		program = cp.apiServers[0].binary
	}
	c := cp.describeAPIServer(i, program, args...)
	c.home, c.log = cp.directory.file(homeFolder), cp.LogFile(c.name)
	if err := cp.start(ctx, c); err != nil {
		return 0, err
	}
	cp.apiServers = append(cp.apiServers, c)
	return i, cp.certificates.writeKubeconfig(cp.certificates.admin, cp.host(i), cp.Kubeconfig(i))
}
