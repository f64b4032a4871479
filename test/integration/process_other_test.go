//go:build !linux

package integration

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
