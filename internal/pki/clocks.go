package pki

import (
	"errors"
	"time"
)

// ClockTolerance is the largest difference of the two clocks at which a rotation
// may begin or end.
const ClockTolerance = 5 * time.Minute

var errExpired = errors.New("expired")

// Clocks holds the time of this machine and the time of an API server, which
// verifies the certificates. A zero Server is unknown.
type Clocks struct {
	Local, Server time.Time
}

// Agree reports whether both times are known and differ by at most ClockTolerance.
func (c Clocks) Agree() bool {
	return !c.Server.IsZero() && c.Server.Sub(c.Local).Abs() <= ClockTolerance
}

// Skew is how far this machine's clock is ahead of the API server's; 0 if that is
// unknown.
func (c Clocks) Skew() time.Duration {
	if c.Server.IsZero() {
		return 0
	}
	return c.Local.Sub(c.Server)
}

// Now returns the API server's time, or the local time if it is unknown.
func (c Clocks) Now() time.Time {
	if c.Server.IsZero() {
		return c.Local
	}
	return c.Server
}

func (c Clocks) early() time.Time {
	if c.Local.Before(c.Now()) {
		return c.Local
	}
	return c.Now()
}

func (c Clocks) late() time.Time {
	if c.Local.After(c.Now()) {
		return c.Local
	}
	return c.Now()
}

// passesByEither returns nil if the check passes by one of the two times, if they
// disagree. A single wrong clock therefore makes no certificate unusable.
func (c Clocks) passesByEither(check func(now time.Time) error) error {
	err := check(c.Now())
	if err == nil || c.Agree() {
		return err
	}
	if check(c.Local) == nil {
		return nil
	}
	return err
}

// earliest returns the earliest of the non-zero times.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
