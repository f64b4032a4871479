//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Internal commands of this program.
const (
	initCommand      = "init"
	superviseCommand = "supervise"
)

// runInit is the first process of the PID namespace. It starts the supervisor and reaps
// orphaned processes, such as the shims of containers. When it exits, all processes end.
func (c cluster) runInit(subnet string) error {
	syscall.CloseOnExec(3) // children do not inherit the lock
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	supervisor, err := os.StartProcess(self, []string{self, "-name", c.name, superviseCommand, subnet},
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		case pid == supervisor.Pid && (status.Exited() || status.Signaled()):
			return fmt.Errorf("the supervisor ended with status %d", status.ExitStatus())
		}
	}
}
