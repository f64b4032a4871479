package chaos

import (
	"net/http"
	"strings"
	"time"
)

// watchStall keeps the responses to watches of exceptions, and of the objects of lookups, from a manager, without an error, while
// everything else works: the manager renews its Lease, is ready and gets calls.
type watchStall struct {
	began time.Time
	// every says that watches that begin later get no response either.
	every    bool
	released chan struct{}
}

// stallWatches begins a stall. releaseWatches passes on what was kept.
func (g *gateway) stallWatches(every bool) {
	g.stall.Store(&watchStall{began: time.Now(), every: every, released: make(chan struct{})})
}

func (g *gateway) releaseWatches() {
	if s := g.stall.Swap(nil); s != nil {
		close(s.released)
	}
}

// canStall reports whether a request watches the exceptions of namespaces, or the objects of lookups. Watches of
// the cluster kind, which has none here, would make a replica apply no exception sooner.
func canStall(r *http.Request) bool {
	path := r.URL.Path
	return r.URL.Query().Has("watch") && (strings.Contains(path, "/webhookpolicyexceptions") || strings.HasSuffix(path, "/"+lookedUp))
}

func (g *gateway) serveWatch(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
	response := &watchResponse{ResponseWriter: w, gateway: g, request: r, began: time.Now()}
	proxy.ServeHTTP(response, r)
	response.await() // the end of a response is kept too
}

// watchResponse waits before each part while a stall of its gateway concerns it.
type watchResponse struct {
	http.ResponseWriter
	gateway *gateway
	request *http.Request
	began   time.Time
}

func (w *watchResponse) await() {
	s := w.gateway.stall.Load()
	if s == nil || !s.every && w.began.After(s.began) {
		return
	}
	select {
	case <-s.released:
	case <-w.request.Context().Done():
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *watchResponse) WriteHeader(code int) {
	w.await()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *watchResponse) Write(p []byte) (int, error) {
	w.await()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController, with which a proxy flushes.
func (w *watchResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
