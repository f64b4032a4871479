//go:build !linux

package webhooks

import "syscall"

// deferAccept does nothing: silent connections are closed when others need their places.
func deferAccept(_, _ string, _ syscall.RawConn) error { return nil }
