//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Commands that up gives to itself.
const (
	initCommand = "init"
	keepCommand = "keep"
)

// beInit is the first process of the cluster: it starts the keeper, and waits
// for whatever ends, as the shims of containers do that have lost their parents.
// With it ends everything.
func (c cluster) beInit(subnet string) error {
	syscall.CloseOnExec(3) // the lock is ours alone
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	keeper, err := os.StartProcess(self, []string{self, "-name", c.name, keepCommand, subnet},
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return fmt.Errorf("starting the keeper: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		case pid == keeper.Pid && (status.Exited() || status.Signaled()):
			return fmt.Errorf("the keeper ended with status %d", status.ExitStatus())
		}
	}
}
