//go:build !linux

package replicas

import "time"

func newClock() func() time.Duration { return newMonotonicClock() }
