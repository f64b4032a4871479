package connections

import "syscall"

// deferral is how long, in seconds, the kernel holds back a connection on which no data has arrived.
const deferral = 30

// deferAccept makes the kernel accept a connection when its first data arrives (TCP_DEFER_ACCEPT, tcp(7)). TLS clients
// send data at once, so they do not wait. Connections without data take no place among the open ones. If the kernel
// does not support the option, silent connections are evicted when others need their place.
func deferAccept(_, _ string, socket syscall.RawConn) error {
	return socket.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, deferral)
	})
}
