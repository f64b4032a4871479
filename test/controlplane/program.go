package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Program is one more program to run beside a control plane, such as the manager
// in the demo and in benchmarks.
type Program struct {
	// Name is also that of its log, see LogFile.
	Name string
	// Path is absolute: the program works in the temporary directory.
	Path string
	// Ports is how many free loopback ports it needs.
	Ports int
	// Args are its arguments, given the ports.
	Args func(ports []int) []string
	// Env are further variables of its environment, NAME=value.
	Env []string
	// Probes are the URLs that answer 200 when it is ready, given the ports. A
	// program without any counts as ready when it has started.
	Probes func(ports []int) []string
}

// Running is a program that became ready. Like the control plane, it dies with
// the process that started it, and its log is gone after the control plane's Stop.
type Running struct {
	component *component
	process   *process
}

// Port returns one of the program's ports on loopback, counted from 0.
func (r *Running) Port(i int) int { return r.component.ports[i] }

// Run starts a program and returns when it is ready. A failure, or the end of ctx
// before that, leaves no process behind. Stop it before the control plane.
func (cp *ControlPlane) Run(ctx context.Context, p Program) (*Running, error) {
	c := &component{
		name: p.Name, binary: p.Path, ports: make([]int, p.Ports), args: p.Args, env: p.Env, probes: p.Probes,
		home: cp.directory.file(homeFolder), log: cp.LogFile(p.Name),
	}
	if c.probes == nil {
		c.probes = func([]int) []string { return nil }
	}
	if err := cp.start(ctx, c); err != nil {
		return nil, err
	}
	return &Running{component: c, process: c.process}, nil
}

// PID returns the id of its process.
func (r *Running) PID() int { return r.process.pid() }

// Done is closed when the program has ended.
func (r *Running) Done() <-chan struct{} { return r.process.done }

// Err says how it ended, once Done is closed; nil means well.
func (r *Running) Err() error { return r.process.err }

// Signal sends it a signal. That it has ended is no error.
func (r *Running) Signal(s os.Signal) error {
	if err := r.process.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling %s: %w", r.component.name, err)
	}
	return nil
}

// LogTail returns the end of what it printed.
func (r *Running) LogTail() string { return tail(r.component.log) }

// Stop asks the program to end, with SIGTERM, and kills it when that takes too
// long. It is an error when the program had ended before, or does not end well.
func (r *Running) Stop() error {
	if err := r.component.stop(gracePeriod); err != nil {
		return err
	}
	if r.process.err != nil {
		return r.component.failure("stopping "+r.component.name, r.process.err)
	}
	return nil
}

// Kill ends the program at once, as a crash would.
func (r *Running) Kill() { r.process.kill() }
