package webhooks

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// flood is many connections that a client opens and leaves.
type flood struct {
	dialer       net.Dialer
	address      string
	size, opened int
	held         []net.Conn
}

// newFlood prepares for so many connections, or for as many as may be open. Go has raised the limit as far as it goes.
func newFlood(tb testing.TB, address, from string, size int) *flood {
	tb.Helper()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		tb.Fatal(err)
	}
	const others = 3000 // the server's end of them, among others
	if files.Cur < others+3000 {
		tb.Skipf("only %d files may be open, which is not enough for a flood", files.Cur)
	}
	f := &flood{address: address, size: min(size, int(files.Cur)-others)}
	f.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	tb.Cleanup(f.close)
	return f
}

// open opens so many more connections, and sends the beginning of something on each.
func (f *flood) open(tb testing.TB, n int, beginning string) {
	tb.Helper()
	for range n {
		c, err := f.dialer.DialContext(tb.Context(), "tcp", f.address)
		if err != nil {
			tb.Fatalf("after %d connections: %v", f.opened, err)
		}
		f.opened++
		f.held = append(f.held, c)
		_, _ = io.WriteString(c, beginning) // which it may have been cut off from
	}
}

func (f *flood) close() {
	for _, c := range f.held {
		_ = c.Close()
	}
}

// replaceOldest opens connections in place of the oldest ones, 2,000 a second, until it is stopped.
func (f *flood) replaceOldest(tb testing.TB) (stop func()) {
	tb.Helper()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			for range 20 {
				_ = f.held[0].Close()
				f.held = f.held[1:]
				c, err := f.dialer.DialContext(tb.Context(), "tcp", f.address)
				if err != nil {
					tb.Errorf("opening one more: %v", err)
					return
				}
				f.held = append(f.held, c)
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// TestFlood opens more connections than the server holds, as many as the machine lets it, up to 10,000, and leaves them
// half open: without a handshake, or with one and without a request. Nothing of them would time out before the test is
// over. Callers go on being answered, whether they keep their connections or need a new one for each request, and whether
// the flood comes from their own address, as behind a load balancer, or from another one. The short form has a tenth of
// the connections, and of the limit.
func TestFlood(t *testing.T) {
	limit := 2000
	if testing.Short() {
		limit = 200
	}
	for name, tc := range map[string]struct {
		from string
		part string
		size int
	}{
		"from another address":          {from: "127.0.0.2", size: 5 * limit},
		"from the address of callers":   {from: "127.0.0.1", size: limit * 3 / 2},
		"after half of a TLS handshake": {from: "127.0.0.1", part: "\x16\x03\x01", size: limit * 3 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := start(t, Options{Registerer: registry, MaxConnections: limit})
			kept, anew := s.client(t), s.client(t)
			anew.Transport.(*http.Transport).DisableKeepAlives = true
			call := func(when string) {
				for _, client := range []*http.Client{kept, anew} {
					if got := post(t, client, s.url("/validate/group?timeout=10s"), validReview()); got.code != http.StatusOK {
						t.Errorf("%s: code %d: %s", when, got.code, got.body)
					}
				}
			}
			call("before the flood")
			flood := newFlood(t, s.address, tc.from, tc.size)
			for flood.opened < flood.size {
				flood.open(t, flood.size/20, tc.part)
				call(fmt.Sprintf("beside %d half-open connections", flood.opened))
			}
			call("beside all of them")
			got := gather(t, registry)
			if n := got["ostiary_webhook_connections"]; n > float64(limit) {
				t.Errorf("%v connections are held, want %d at the most", n, limit)
			}
			if evicted, least := got["ostiary_webhook_connections_evicted_total reason=silent"], float64(flood.size-limit); evicted < least {
				t.Errorf("%v of %d connections were closed to make room, want %v", evicted, flood.size, least)
			}
			if n := got["ostiary_webhook_shed_total reason=connections"]; n != 0 {
				t.Errorf("%v requests were shed because of too many connections", n)
			}
		})
	}
}
