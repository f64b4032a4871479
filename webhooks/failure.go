package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxMessage bounds the text of a failure.
	maxMessage = 1024

	internalMessage = "internal error; the log of the replica has the details"
)

// failure is an answer with an HTTP error status instead of a review.
type failure struct {
	code    int
	message string
	// retryAfter is the header's value, or empty.
	retryAfter string
	// shed is the reason for which the request was shed, or empty.
	shed string
}

func (f *failure) Error() string { return f.message }

// noDecision returns the failure for a request that was not decided within its timeout.
func noDecision(timeout time.Duration) *failure {
	return &failure{code: http.StatusGatewayTimeout, message: fmt.Sprintf("no decision within %s", timeout)}
}

// retryAfter returns the value of the header Retry-After for d: whole seconds, rounded up.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(int64((max(d, 0)+time.Second-1)/time.Second), 10)
}

// describe sets the headers for err and returns its text and status code.
func describe(header http.Header, err error) ([]byte, int) {
	f := &failure{code: http.StatusInternalServerError, message: internalMessage}
	errors.As(err, &f)
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	if f.retryAfter != "" {
		header.Set("Retry-After", f.retryAfter)
	}
	switch f.code {
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", `Bearer, Basic realm="ostiary"`)
	}
	return []byte(truncate.Line(f.message, maxMessage) + "\n"), f.code
}
