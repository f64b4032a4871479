package replicas

import (
	"time"

	"golang.org/x/sys/unix"
)

// newClock returns a clock that counts while the machine is suspended, too:
// CLOCK_MONOTONIC, which the time package reads, stands still then.
func newClock() func() time.Duration {
	if _, err := sinceBoot(); err != nil {
		return newMonotonicClock()
	}
	return func() time.Duration {
		now, _ := sinceBoot() // it fails always or never
		return now
	}
}

func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano()), err
}
