package connections

import (
	"context"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/ostiary/ostiary/internal/truncate"
)

// maxReason bounds the text of a log line of net/http.
const maxReason = 1024

// Listen listens on a TCP address, host:port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{Control: deferAccept}
	return config.Listen(ctx, "tcp", address)
}

// NewServer returns a server for a Listener with the same timeouts. It speaks only HTTP/1.1: with HTTP/2, one connection
// can carry any number of requests, so that a limit on connections bounds nothing.
func NewServer(handler http.Handler, t Timeouts, maxHeaderBytes int, log logr.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            t.Header,
		ReadTimeout:                  t.Read,
		WriteTimeout:                 t.Write,
		IdleTimeout:                  t.Idle,
		MaxHeaderBytes:               maxHeaderBytes,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     newErrorLog(log),
		ConnContext:                  withConn,
	}
}

// errorLog forwards the log of net/http at verbosity 1, one line a second, because clients can cause any number of lines.
type errorLog struct {
	log   logr.Logger
	limit *rate.Limiter
}

func newErrorLog(to logr.Logger) *log.Logger {
	return log.New(&errorLog{log: to.V(1), limit: rate.NewLimiter(rate.Every(time.Second), 10)}, "", 0)
}

func (e *errorLog) Write(line []byte) (int, error) {
	if e.log.Enabled() && e.limit.Allow() {
		e.log.Info("Connection failed", "reason", truncate.Line(strings.TrimSpace(string(line)), maxReason))
	}
	return len(line), nil
}
