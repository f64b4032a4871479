package certificates

import (
	"net/http"
	"sync/atomic"
	"time"
)

// ServerClock tells the time by the API server's answers. What it says is the
// opinion of who verifies certificates, whatever this machine's clock says.
type ServerClock struct{ last atomic.Pointer[serverTime] }

// serverTime is the Date of an answer and when it came, with the monotonic part.
type serverTime struct{ date, receivedAt time.Time }

// maxServerTimeAge is how long a clock is trusted to run like this machine's.
const maxServerTimeAge = 10 * time.Minute

// Wrap is for rest.Config.Wrap: it listens to the answers.
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

// WrappedRoundTripper lets client-go find the transport below.
func (l recorder) WrappedRoundTripper() http.RoundTripper { return l.next }

// Now is the API server's time; zero if it has not been heard for a while.
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
