package webhooks

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/ostiary/ostiary/internal/authentication"
)

// Authenticator authenticates callers.
//
// Authenticate returns nil for an accepted caller, and otherwise an *authentication.RejectedError, whose text is the
// answer. It is called for every request before the body is read, and must not block. The TLS handshake proves only
// that the caller holds the key of its client certificate. Authenticate verifies the certificate for each request, so
// that the answer can name the problem, other credentials are accepted instead, and open connections lose access when
// a CA is removed or a certificate expires.
type Authenticator interface {
	Authenticate(r *http.Request) error
}

// callerCheck authenticates requests, and counts and logs those that it rejects.
type callerCheck struct {
	authenticator Authenticator // nil: every caller is accepted
	metrics       *metrics
	log           logr.Logger
	limit         *rate.Limiter // of log lines, because callers can cause any number of rejections
}

func newCallerCheck(o Options, m *metrics) callerCheck {
	return callerCheck{authenticator: o.Authenticator, metrics: m, log: o.Log, limit: rate.NewLimiter(rate.Every(10*time.Second), 3)}
}

// check returns the failure for a caller that is not accepted, nil for others. The body of a rejected request is read
// neither before nor after the answer.
func (g callerCheck) check(w http.ResponseWriter, r *http.Request) error {
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
		g.log.Info("Rejected a caller", "address", r.RemoteAddr, "reason", rejected.Reason, "detail", rejected.Text)
	}
	if rejected.Reason == authentication.ReasonNotLoaded { // the caller may be accepted later
		return &failure{code: http.StatusServiceUnavailable, message: rejected.Text, retryAfter: retryAfter(time.Second)}
	}
	return &failure{code: http.StatusUnauthorized, message: rejected.Text}
}
