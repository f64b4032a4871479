package connections

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// waitTimeout is how long tests wait for an event that must happen.
const waitTimeout = 2 * time.Minute

// running is a server on a loopback port that answers "ok".
type running struct {
	address string
	open    *Set
	evicted atomic.Int64
	clients *tls.Config // nil: HTTP
}

// serve serves until the test ends.
func serve(t *testing.T, secure bool, limit int, o Options) *running {
	t.Helper()
	inner, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{address: inner.Addr().String()}
	r.open = NewSet(limit, func(string) { r.evicted.Add(1) })
	if secure {
		source := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
		source.Close()
		roots := x509.NewCertPool()
		roots.AddCert(source.Certificate())
		r.clients = &tls.Config{RootCAs: roots}
		o.TLS = &tls.Config{Certificates: source.TLS.Certificates, NextProtos: []string{"http/1.1"}}
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	server := NewServer(handler, o.Timeouts, 1<<10, logr.Discard())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(NewListener(inner, r.open, o)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return r
}

// dial returns a connection whose handshake is complete for the client.
func (r *running) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	if r.clients == nil {
		return c
	}
	config := r.clients.Clone()
	config.ServerName = "127.0.0.1"
	secure := tls.Client(c, config)
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	return secure
}

// ask sends a request and returns the answer.
func ask(t *testing.T, c net.Conn) *http.Response {
	t.Helper()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain: %s", waitTimeout, what)
		}
	}
}

// generous are timeouts that no test reaches.
func generous() Timeouts {
	return Timeouts{Handshake: time.Hour, Header: time.Hour, Read: time.Hour, Write: time.Hour, Idle: time.Hour}
}

// TestUnusedConnectionDuringFlood checks that silent connections do not evict one that an API server has opened and not
// used yet: its first request would fail.
func TestUnusedConnectionDuringFlood(t *testing.T) {
	r := serve(t, true, 32, Options{Timeouts: generous(), KeepUnused: true})
	c := r.dial(t)
	eventually(t, "the handshake is over", func() bool {
		r.open.mu.Lock()
		defer r.open.mu.Unlock()
		all := r.open.states()
		return len(all) == 1 && all[0].progress == progressHandshake
	})
	for range 3 * 32 {
		silent, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { silent.Close() })
		_, _ = io.WriteString(silent, "\x16") // so that the kernel does not hold it back
	}
	eventually(t, "room has been made", func() bool { return r.evicted.Load() >= 2*32 })
	if got := ask(t, c); got.StatusCode != http.StatusOK {
		t.Errorf("status %s, want 200", got.Status)
	}
}

// TestSlowClients checks that connections of slow and silent clients are closed, with TLS and without.
func TestSlowClients(t *testing.T) {
	const soon = 50 * time.Millisecond
	for name, sent := range map[string]string{
		"nothing":       "",
		"half a header": "GET / HTTP/1.1\r\nHost: x\r\n",
		"half a body":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"no more":       "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a long header": "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 8<<10),
	} {
		for _, secure := range []bool{false, true} {
			if !secure && sent == "" {
				continue // the kernel holds it back
			}
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				r := serve(t, secure, 8, Options{Timeouts: Timeouts{Handshake: waitTimeout, Header: soon, Read: soon, Write: waitTimeout, Idle: soon}})
				c := r.dial(t)
				_, _ = io.WriteString(c, sent)
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection was left open")
				}
				eventually(t, "no connection is counted", func() bool { return r.open.Count() == 0 })
			})
		}
	}
}

// TestNoHTTP2 checks that HTTP/2 is not spoken: neither negotiated nor without negotiation.
func TestNoHTTP2(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("preface, TLS %t", secure), func(t *testing.T) {
			c := serve(t, secure, 8, Options{Timeouts: generous()}).dial(t)
			if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.ProtoMajor != 1 || !response.Close {
				t.Errorf("answer with %s, closed: %t, want HTTP/1.1 and the end of the connection", response.Proto, response.Close)
			}
		})
	}
	r := serve(t, true, 8, Options{Timeouts: generous()})
	r.clients.NextProtos = []string{"h2", "http/1.1"}
	if got := r.dial(t).(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("negotiated %q, want http/1.1", got)
	}
}

// TestErrorLogIsBounded checks that clients cannot cause net/http to write any number of log lines.
func TestErrorLogIsBounded(t *testing.T) {
	var lines []string
	to := newErrorLog(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1}))
	for i := range 1000 {
		to.Printf("line %d\nof two %s", i, strings.Repeat("x", 4*maxReason))
	}
	if n := len(lines); n < 1 || n > 100 {
		t.Errorf("%d lines, want a few", n)
	}
	if strings.Contains(lines[0], `\n`) || len(lines[0]) > 2*maxReason {
		t.Errorf("a line break or %d bytes were passed on", len(lines[0]))
	}
}

// TestOf checks that handlers find the connection of a request, and none without a listener.
func TestOf(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	c := OfRequest(r)
	c.Begin()
	c.Prove()
	c.End(time.Now())
	if c != nil || c.IsExcess() || c.Retire(time.Now()) {
		t.Error("a request without a listener has a connection")
	}
	_, server := net.Pipe()
	l := NewListener(nil, newSet(1), Options{})
	want := l.newConn(server)
	if got := OfRequest(r.WithContext(withConn(context.Background(), l.served(want)))); got != want {
		t.Errorf("connection %p, want %p", got, want)
	}
}
