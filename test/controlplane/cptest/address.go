package cptest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// FreeAddress returns an address on loopback without a listener, below the ports that
// outgoing connections take. Tests start programs that listen there later, so until this
// process ends no other call returns it, in this process or another one: an open UDP socket
// has the same port. It panics without a free port.
func FreeAddress() string {
	for range 10_000 {
		port := 20_000 + rand.IntN(10_000)
		if !reserve(port) {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	panic("no port from 20000 to 29999 is free")
}

// reserve reports whether it could bind a UDP socket, which stays open.
func reserve(port int) bool {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return false
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = syscall.Close(fd)
		return false
	}
	return true
}
