package controlplane

import "syscall"

// childAttributes puts a child in a process group of its own, so that Ctrl-C in
// a terminal reaches us and not it, and has it killed when we are.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
