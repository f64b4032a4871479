package webhooks

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/registration"
)

// hold opens n connections from the local address, sends each the same beginning of a request, and goes on as trickle
// says, until the test ends.
func hold(tb testing.TB, s *running, n int, from, beginning string, trickle time.Duration) {
	tb.Helper()
	dialer := &tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: &tls.Config{RootCAs: s.pool}}
	for range n {
		c, err := dialer.DialContext(tb.Context(), "tcp", s.address)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { c.Close() })
		go func() {
			_, _ = io.WriteString(c, beginning) // it waits where the server does not read
			for trickle > 0 && tb.Context().Err() == nil {
				time.Sleep(trickle)
				if _, err := io.WriteString(c, " "); err != nil {
					return
				}
			}
		}()
	}
	waitUntilIdle(s)
}

// waitUntilIdle waits until no body has grown for longer than a body may lag: those that send little are slow then.
func waitUntilIdle(s *running) {
	held, deadline := int64(-1), time.Now().Add(time.Minute)
	for now := s.handler.bodies.memory.held.Load(); held != now && time.Now().Before(deadline); now = s.handler.bodies.memory.held.Load() {
		held = now
		time.Sleep(2 * maxLag)
	}
}

// header is that of a review, without the length of the body.
const header = "POST /validate/group?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

// TestLargeBodyBesideHostileConnections checks that a large review is answered while connections from any network
// announce large bodies and send little. In the short form, all sizes but those of small bodies are a quarter.
func TestLargeBodyBesideHostileConnections(t *testing.T) {
	mib := 1 << 20
	if testing.Short() {
		mib /= 4
	}
	limit, memory := 7*mib, 16*mib
	announced := fmt.Sprintf("%sContent-Length: %d\r\n\r\n", header, limit)
	cases := map[string]struct {
		n         int
		from      string
		beginning string
		trickle   time.Duration
	}{
		"12 send nothing":                       {n: 12, from: "127.0.0.1", beginning: announced},
		"12 send nothing, from another network": {n: 12, from: "127.0.9.1", beginning: announced},
		"12 trickle after 1 MiB": {
			n:         12,
			from:      "127.0.0.1",
			beginning: announced + strings.Repeat(" ", mib),
			trickle:   10 * time.Millisecond,
		},
		"12 stop after 4 MiB": {
			n:         12,
			from:      "127.0.0.1",
			beginning: announced + strings.Repeat(" ", 4*mib),
		},
		"12 stop after 4 MiB, from another network": {
			n:         12,
			from:      "127.0.9.1",
			beginning: announced + strings.Repeat(" ", 4*mib),
		},
		"100 stop after 600 KiB":       {n: 100, from: "127.0.0.1", beginning: announced + strings.Repeat(" ", mib*6/10)},
		"12 chunked ones send nothing": {n: 12, from: "127.0.0.1", beginning: header + "Transfer-Encoding: chunked\r\n\r\n"},
		"12 chunked ones stop after 1 MiB": {
			n:         12,
			from:      "127.0.9.1",
			beginning: header + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + strings.Repeat(" ", mib),
		},
		"100 small ones, and nothing of their bodies": {n: 100, from: "127.0.0.1", beginning: header + "Content-Length: 32768\r\n\r\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := start(t, Options{Registerer: registry, MaxBodyBytes: int64(limit), MaxInFlightBytes: int64(memory)})
			hold(t, s, tc.n, tc.from, tc.beginning, tc.trickle)
			for _, size := range []int{100 << 10, 6 * mib} {
				body := validReview() + strings.Repeat(" ", size)
				if got := post(t, s.client(t), s.url("/validate/group?timeout=30s"), body); got.code != http.StatusOK {
					t.Errorf("a review of %d bytes was answered with %d %s, want 200", len(body), got.code, got.body)
				}
			}
			if got := gather(t, registry)["ostiary_webhook_large_body_bytes"]; got > float64(memory) {
				t.Errorf("%v bytes are held, want at most %d", got, memory)
			}
		})
	}
}

// TestAnnouncedBodies has 1,000 connections (200 in the short form) announce the largest body and send nothing of it, or one byte. They
// hold a small buffer each, nothing of what large bodies share, and a large review is answered.
func TestAnnouncedBodies(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 200 // the race detector makes handshakes slow
	}
	announced := header + "Content-Length: 29360128\r\n\r\n"
	for name, beginning := range map[string]string{"nothing": announced, "one byte": announced + "{"} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := start(t, Options{Registerer: registry})
			before := liveHeap()
			hold(t, s, n, "127.0.9.1", beginning, 0)
			eventually(t, "all announcements have arrived", func() bool {
				return gather(t, registry)["ostiary_webhook_http_requests_in_flight"] >= float64(n)
			})
			if got := gather(t, registry)["ostiary_webhook_large_body_bytes"]; got != 0 {
				t.Errorf("announcements hold %v bytes of what large bodies share, want none", got)
			}
			// A small buffer, and what TLS and net/http need at both ends, which are in this process.
			if grown, most := liveHeap()-before, int64(n*(smallBody+96<<10)); grown > most {
				t.Errorf("%d announcements take %d bytes, want at most %d", n, grown, most)
			}
			body := validReview() + strings.Repeat(" ", 1<<20)
			if got := post(t, s.client(t), s.url("/validate/group?timeout=30s"), body); got.code != http.StatusOK {
				t.Errorf("a review of 1 MiB was answered with %d %s, want 200", got.code, got.body)
			}
		})
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second empties pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestUnreadAnswers asks for answers that fill every buffer and reads none of them. While they are unread they hold
// nothing of what large bodies and evaluations share, and after the timeout their connections are closed.
func TestUnreadAnswers(t *testing.T) {
	const limit, n = 1 << 20, 4
	const inFlight = "ostiary_webhook_http_requests_in_flight"
	patch := []byte(`"` + strings.Repeat("x", 6<<20) + `"`) // sockets buffer 4 MiB
	evaluated := make(chan struct{}, n)
	evaluator := evaluatorFunc(func(_ context.Context, key registration.GroupKey, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		response := &admissionv1.AdmissionResponse{Allowed: true}
		if key.Name == "large" {
			evaluated <- struct{}{}
			response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
		}
		return response, nil
	})
	body := validReview() + strings.Repeat(" ", limit-4<<10)
	unread := func(t *testing.T, timeout time.Duration) (*running, *prometheus.Registry) {
		registry := prometheus.NewRegistry()
		s := start(t, Options{
			Registerer:       registry,
			Evaluator:        evaluator,
			MaxBodyBytes:     limit,
			MaxInFlightBytes: limit,
			MaxEvaluations:   1,
			MaxInFlight:      2,
		},
			func(s *Server) { s.handler.answerTimeout = timeout })
		for range n {
			c := dialTLS(t, s)
			if err := c.NetConn().(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /mutate/large?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			select { // the body of another review would be in its way before
			case <-evaluated:
			case <-time.After(waitTimeout):
				t.Fatal("the review is not evaluated")
			}
			eventually(t, "another large review is answered", func() bool {
				return post(t, s.client(t), s.url("/validate/group?timeout=30s"), body).code == http.StatusOK
			})
		}
		return s, registry
	}
	t.Run("hold nothing", func(t *testing.T) {
		_, registry := unread(t, time.Hour)
		eventually(t, "only the requests whose answers are not read are under way", func() bool {
			return gather(t, registry)[inFlight] == n
		})
	})
	t.Run("are given up", func(t *testing.T) {
		_, registry := unread(t, time.Second)
		eventually(t, "no request is under way", func() bool {
			return gather(t, registry)[inFlight] == 0
		})
	})
}
