package webhooks

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ostiary/ostiary/internal/connections"
)

// threadTime is the processor time that the calling thread has spent, in user and in kernel mode.
func threadTime(tb testing.TB) time.Duration {
	tb.Helper()
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkHandshake is the processor time that a handshake takes on each side, over loopback: as the server does it,
// for each new connection anew, and as it would be if sessions were resumed.
func BenchmarkHandshake(b *testing.B) {
	p := newPair(b)
	s, err := New(Options{Address: ":0", GetCertificate: p.get, Accepts: acceptsAll, Evaluator: allowAll()})
	if err != nil {
		b.Fatal(err)
	}
	resuming := s.tlsConfig()
	resuming.SessionTicketsDisabled = false
	for _, bench := range []struct {
		name    string
		config  *tls.Config
		session tls.ClientSessionCache
	}{
		{"new", s.tlsConfig(), nil},
		{"resumed", resuming, tls.NewLRUClientSessionCache(1)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			client := &tls.Config{RootCAs: p.pool, ServerName: "checks.shop.svc", ClientSessionCache: bench.session, MinVersion: tls.VersionTLS13}
			handshakes(b, l, bench.config, client)
		})
	}
}

func handshakes(b *testing.B, l net.Listener, server, client *tls.Config) {
	spent := make(chan time.Duration)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var all time.Duration
		for i := range b.N + 1 { // the first one is for a session to resume
			before := threadTime(b)
			c, err := l.Accept()
			if err != nil {
				b.Error(err)
				break
			}
			// The answer carries the ticket of a session.
			_, _ = tls.Server(c, server).Write([]byte{0})
			if i > 0 {
				all += threadTime(b) - before
			}
			_ = c.Close()
		}
		spent <- all
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	connect(b, l.Addr().String(), client)
	before := threadTime(b)
	b.ResetTimer()
	for range b.N {
		if state := connect(b, l.Addr().String(), client); state.DidResume != (client.ClientSessionCache != nil) {
			b.Fatalf("resumed: %t", state.DidResume)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((threadTime(b)-before).Microseconds())/float64(b.N), "client-CPU-µs/op")
	b.ReportMetric(float64((<-spent).Microseconds())/float64(b.N), "server-CPU-µs/op")
}

func connect(b *testing.B, address string, config *tls.Config) tls.ConnectionState {
	b.Helper()
	c, err := tls.Dial("tcp", address, config)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return c.ConnectionState()
}

// BenchmarkDuringFlood is how long honest callers wait, alone and beside a client that holds up to 10,000 half-open
// connections and opens 2,000 more a second. Four callers keep their connections, and four need a new one for each
// request. All of it shares this machine's processors.
func BenchmarkDuringFlood(b *testing.B) {
	for _, flooded := range []bool{false, true} {
		name := map[bool]string{false: "alone", true: "flooded"}[flooded]
		for _, anew := range []bool{false, true} {
			kind := map[bool]string{false: "/kept", true: "/new"}[anew]
			b.Run(name+kind, func(b *testing.B) {
				l, err := connections.Listen(b.Context(), "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				s := start(b, Options{Listener: l}, func(s *Server) { s.timeouts.Handshake = 5 * time.Second })
				if flooded {
					f := newFlood(b, s.address, "127.0.0.2", 10_000)
					f.open(b, f.size, "")
					defer f.replaceOldest(b)()
				}
				besides(b, s, anew)
			})
		}
	}
}

func besides(b *testing.B, s *running, anew bool) {
	const callers = 4
	body := readFile(b, "testdata/review.json")
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, callers)
	var group sync.WaitGroup
	b.ResetTimer()
	for i := range callers {
		client := s.client(b)
		client.Transport.(*http.Transport).DisableKeepAlives = anew
		group.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				response, err := client.Post(s.url("/validate/group?timeout=5s"), contentType, bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK {
					b.Errorf("code %d", response.StatusCode)
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.SortFunc(all, cmp.Compare[time.Duration])
	at := func(q float64) float64 {
		return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
}
