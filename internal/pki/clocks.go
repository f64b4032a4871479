package pki

import (
	"errors"
	"time"
)

// ClockTolerance is how far two clocks may be apart before nothing destructive
// is done on the word of one of them.
const ClockTolerance = 5 * time.Minute

var errExpired = errors.New("expired")

// Clocks are two opinions about the time: this machine's, and that of an API
// server, which is who verifies. A Server of zero is unknown.
type Clocks struct {
	Local, Server time.Time
}

// Agree reports whether the opinions are close enough to act on.
func (c Clocks) Agree() bool {
	return !c.Server.IsZero() && c.Server.Sub(c.Local).Abs() <= ClockTolerance
}

// Skew is how far this machine's clock is ahead of the API server's; 0 where
// that is not known.
func (c Clocks) Skew() time.Duration {
	if c.Server.IsZero() {
		return 0
	}
	return c.Local.Sub(c.Server)
}

// Now is the better opinion: that of who verifies.
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

// passesByEither asks both opinions where they differ. It is nil if the check passes for
// one of them, so that a wrong clock alone makes nothing unusable.
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

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
