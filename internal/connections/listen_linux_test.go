package connections

import (
	"io"
	"net"
	"testing"
)

// TestSilentConnectionsAreNotAccepted opens connections without data, and then one with data: it is accepted first, and
// the others when they send data.
func TestSilentConnectionsAreNotAccepted(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	expect := func(want net.Conn) {
		t.Helper()
		if _, err := io.WriteString(want, "\x16"); err != nil {
			t.Fatal(err)
		}
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if got, want := got.RemoteAddr().String(), want.LocalAddr().String(); got != want {
			t.Errorf("accepted the connection of %s, want that of %s, which spoke", got, want)
		}
	}
	silent := []net.Conn{dial(), dial(), dial()}
	expect(dial())
	for _, c := range silent {
		expect(c)
	}
}
