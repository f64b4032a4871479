package replicas

import (
	"time"

	"golang.org/x/sys/unix"
)

// newClock returns a clock that includes the time during which the machine is
// suspended, unlike CLOCK_MONOTONIC, which the time package reads.
func newClock() func() time.Duration {
	if _, err := sinceBoot(); err != nil {
		return newMonotonicClock()
	}
	return func() time.Duration {
		now, _ := sinceBoot() // always or never fails
		return now
	}
}

func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano()), err
}
