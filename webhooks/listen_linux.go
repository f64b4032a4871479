package webhooks

import "syscall"

// deferral is how long, in seconds, the kernel keeps a connection to itself on which nothing has come.
const deferral = 30

// deferAccept has the kernel hand over connections when the client has said something (TCP_DEFER_ACCEPT, tcp(7)). Who
// speaks TLS does so as soon as it is connected, so nobody who calls waits for that; and who only holds connections takes
// neither a place nor time of this process. Where the kernel does not know of it, those are closed when others need their
// places.
func deferAccept(_, _ string, socket syscall.RawConn) error {
	return socket.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, deferral)
	})
}
