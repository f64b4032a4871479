package certificates

import (
	"net/http"
	"sync/atomic"
	"time"
)

// ServerClock estimates the API server's time from the Date header of its
// responses. The API server verifies the certificates, so its time counts.
type ServerClock struct{ last atomic.Pointer[serverTime] }

// serverTime is the Date of a response and when it arrived, by the monotonic
// clock.
type serverTime struct{ date, receivedAt time.Time }

// maxServerTimeAge is how long the estimate is used without a new response.
const maxServerTimeAge = 10 * time.Minute

// Wrap is for rest.Config.Wrap. It reads the responses.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper {
	return recorder{clock: c, next: next}
}

type recorder struct {
	clock *ServerClock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err == nil {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			l.clock.last.Store(&serverTime{date: date, receivedAt: time.Now()})
		}
	}
	return response, err
}

// WrappedRoundTripper returns the underlying transport, for client-go.
func (l recorder) WrappedRoundTripper() http.RoundTripper { return l.next }

// Now returns the API server's time; zero without a response in the last ten
// minutes.
func (c *ServerClock) Now() time.Time {
	last := c.last.Load()
	if last == nil {
		return time.Time{}
	}
	age := time.Since(last.receivedAt)
	if age > maxServerTimeAge {
		return time.Time{}
	}
	return last.date.Add(age)
}
