package webhooks

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/ostiary/ostiary/internal/authentication"
)

// Authenticator decides who may call.
//
// Authenticate returns nil for whoever may, and otherwise a *callers.RejectedError, whose text is the answer. It is
// asked for every request before anything of the body is read, and must not wait. Of a client certificate the handshake
// has proved only that the caller has its key: verifying it for each request, and not in the handshake, lets a request
// be answered with what is wrong, lets another credential do instead, and ends what open connections may do at once
// when a CA is withdrawn or a certificate expires.
type Authenticator interface {
	Authenticate(r *http.Request) error
}

// callerGate is what callers pass first.
type callerGate struct {
	authenticator Authenticator // nil: everybody may call
	metrics       *metrics
	log           logr.Logger
	limit         *rate.Limiter // of lines in the log, which callers cause at will
}

func newGate(o Options, m *metrics) callerGate {
	return callerGate{authenticator: o.Authenticator, metrics: m, log: o.Log, limit: rate.NewLimiter(rate.Every(10*time.Second), 3)}
}

// check returns the failure to answer a caller with that may not call. Nothing of its body is read then, neither before
// the answer nor after it.
func (g callerGate) check(w http.ResponseWriter, r *http.Request) error {
	if g.authenticator == nil {
		return nil
	}
	err := g.authenticator.Authenticate(r)
	if err == nil {
		return nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	var rejected *authentication.RejectedError
	if !errors.As(err, &rejected) {
		return err
	}
	g.metrics.rejected[rejected.Reason].Inc()
	if g.limit.Allow() {
		g.log.Info("Refused a caller", "address", r.RemoteAddr, "reason", rejected.Reason, "detail", rejected.Text)
	}
	if rejected.Reason == authentication.ReasonNotLoaded { // which is not the caller's fault
		return &failure{code: http.StatusServiceUnavailable, message: rejected.Text, retryAfter: retryAfter(time.Second)}
	}
	return &failure{code: http.StatusUnauthorized, message: rejected.Text}
}
