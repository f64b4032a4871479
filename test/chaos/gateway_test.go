package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// gateway is the way of one manager to the API servers: to the one that it
// prefers while that is up. It sees every request and can lose any of them.
type gateway struct {
	server  *http.Server
	address string
	relay   *relay // in front, can be held
	prefers atomic.Int64
	skew    atomic.Int64
	delay   atomic.Int64
	stall   atomic.Pointer[watchStall]

	mu   sync.Mutex
	trap *trap
}

// trap springs at one write of the manager.
type trap struct {
	// at says whether this write is the one.
	at func(method, path string) bool
	// after has the API server carry out the write; the manager does not hear of it.
	after bool
	// spring ends the manager.
	spring func()
	sprung chan struct{}
}

func newGateway(w *world, prefers int) (*gateway, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.plane.Config().CAData)
	g := &gateway{}
	g.prefers.Store(int64(prefers))
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			i := int(g.prefers.Load())
			if !w.up[i].Load() {
				i = (i + 1) % apiServers
			}
			target, err := url.Parse(w.plane.Config(i).Host)
			if err == nil {
				r.SetURL(target)
				// A client sends no token without TLS.
				r.Out.Header.Set("Authorization", "Bearer "+w.token)
			}
		},
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 64, DisableCompression: true,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		},
		FlushInterval:  -1, // watches
		ModifyResponse: g.date,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.server = &http.Server{Handler: g.handler(proxy), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	if g.relay, err = newRelay(l.Addr().String()); err != nil {
		return nil, err
	}
	g.address = g.relay.address()
	go func() { _ = g.server.Serve(l) }()
	return g, nil
}

func (g *gateway) close() {
	g.relay.close()
	_ = g.server.Close()
}

func (g *gateway) handler(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Duration(g.delay.Load()))
		if canStall(r) {
			g.serveWatch(proxy, w, r)
			return
		}
		t := g.trapped(r)
		if t == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		if t.after {
			proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		}
		t.spring()
		close(t.sprung)
		panic(http.ErrAbortHandler)
	})
}

// trapped is the trap that a request steps into; it springs once.
func (g *gateway) trapped(r *http.Request) *trap {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trap == nil || r.Method == http.MethodGet || !g.trap.at(r.Method, r.URL.Path) {
		return nil
	}
	t := g.trap
	g.trap = nil
	return t
}

func (g *gateway) set(t *trap) {
	t.sprung = make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trap = t
}

func (g *gateway) unset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trap = nil
}

// date has the API servers' clock be wrong, as far as the manager can see.
func (g *gateway) date(r *http.Response) error {
	skew := time.Duration(g.skew.Load())
	if at, err := http.ParseTime(r.Header.Get("Date")); err == nil && skew != 0 {
		r.Header.Set("Date", at.Add(skew).UTC().Format(http.TimeFormat))
	}
	return nil
}

// ofConfiguration reports whether a path is that of a configuration of webhooks.
func ofConfiguration(path string) bool { return strings.Contains(path, "webhookconfigurations/") }
