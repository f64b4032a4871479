package manager

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

const (
	// headroom is the growth of the heap, in bytes, after which the runtime collects
	// garbage. With the default of 100% of the live heap, a replica with few policies,
	// which use a few MiB, would collect many times a second under load, and one with
	// many policies would use twice the memory.
	headroom = 20 << 20
	// minGrowth and maxGrowth bound the growth, in per cent of the live heap.
	minGrowth, maxGrowth = 20, 800
	// defaultGrowth is the default of the runtime.
	defaultGrowth = 100
	tuneInterval  = time.Second
)

// limitRatio is the part of the container's memory limit that the Go runtime may use.
// The rest is for the program's pages and for memory that the runtime does not count.
const limitRatio = 0.88

// LimitMemory sets the runtime's memory limit from the container's, so that the runtime
// collects more garbage before the kernel kills the process. GOMEMLIMIT takes
// precedence. Without either there is no limit.
func LimitMemory(container memlimit.Provider, log logr.Logger) {
	limit, err := memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(limitRatio))
	if err != nil {
		log.Info("the memory limit of the container is unknown", "reason", err.Error())
		return
	}
	log.Info("memory limit", "bytes", limit)
}

// tuneCollector adapts GOGC to the size of the live heap until ctx ends. A memory limit
// alone would cause continuous collections when the live heap approaches it.
func tuneCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil // the administrator configures the collector
	}
	ticker := time.NewTicker(tuneInterval)
	defer ticker.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	current := defaultGrowth
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		metrics.Read(live)
		if wanted := growth(live[0].Value.Uint64()); wanted != current {
			current = wanted
			debug.SetGCPercent(wanted)
		}
	}
}

// growth returns the value of GOGC for a live heap in bytes.
func growth(live uint64) int {
	if live == 0 {
		return defaultGrowth
	}
	return int(min(max(headroom*100/live, minGrowth), maxGrowth))
}
