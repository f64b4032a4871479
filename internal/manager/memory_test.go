package manager

import (
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

func TestLimitMemory(t *testing.T) {
	tests := map[string]struct {
		container   memlimit.Provider
		environment string
		want        int64
	}{
		"container limit": {container: memlimit.Limit(1000 << 20), want: 880 << 20},
		"no limit":        {container: func() (uint64, error) { return 0, memlimit.ErrNoLimit }, want: math.MaxInt64},
		"unknown limit":   {container: func() (uint64, error) { return 0, errors.New("no cgroups") }, want: 123 << 20},
		"GOMEMLIMIT":      {container: memlimit.Limit(1000 << 20), environment: "123MiB", want: 123 << 20},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tc.environment)
			if tc.environment == "" {
				if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
					t.Fatal(err)
				}
			}
			// The runtime reads the environment only at its start.
			before := debug.SetMemoryLimit(123 << 20)
			defer debug.SetMemoryLimit(before)
			LimitMemory(tc.container, logr.Discard())
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestGrowth(t *testing.T) {
	tests := map[string]struct {
		live uint64
		want int
	}{
		"unknown":         {live: 0, want: 100},
		"1 MiB":           {live: 1 << 20, want: 800},
		"a few policies":  {live: 10 << 20, want: 175},
		"1,000 policies":  {live: 20 << 20, want: 95},
		"10,000 policies": {live: 100 << 20, want: 31},
		"1 GiB":           {live: 1 << 30, want: 16},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := growth(tc.live); got != tc.want {
				t.Errorf("growth(%d) = %d, want %d", tc.live, got, tc.want)
			}
		})
	}
}

func TestAfterCollections(t *testing.T) {
	var calls atomic.Int64
	afterCollections(func() { calls.Add(1) })
	for calls.Load() < 3 {
		runtime.GC()
	}
}
