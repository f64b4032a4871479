//go:build unix && !linux

package controlplane

import "syscall"

// childAttributes puts a child in a process group of its own, so that Ctrl-C in
// a terminal reaches us and not it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
