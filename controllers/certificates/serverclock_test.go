package certificates

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// TestServerClock checks that the last response with a Date counts.
func TestServerClock(t *testing.T) {
	var c ServerClock
	if !c.Now().IsZero() {
		t.Error("there is a time before any answer")
	}
	date, err := "", error(nil)
	transport := c.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Header: http.Header{"Date": {date}}}, err
	}))
	ask := func(d string, e error) {
		date, err = d, e
		_, _ = transport.RoundTrip(&http.Request{})
	}
	want := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	ask(want.Format(http.TimeFormat), nil)
	ask("soon", nil)
	ask("", errors.New("no server"))
	if off := c.Now().Sub(want); off < 0 || off > time.Minute {
		t.Errorf("it is %s, want %s or a little later", c.Now(), want)
	}
	c.last.Store(&serverTime{date: want, receivedAt: time.Now().Add(-maxServerTimeAge - time.Second)})
	if !c.Now().IsZero() {
		t.Error("an answer of long ago still counts")
	}
}
