package manager

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

const (
	// headroom is the growth of the heap, in bytes, after which the runtime collects
	// garbage, besides minGrowth. With the default of 100% of the live heap, a replica with
	// few policies, which use a few MiB, would collect many times a second under load, and
	// one with many policies would use twice the memory.
	headroom = 16 << 20
	// minGrowth and maxGrowth bound the growth, in per cent of the live heap. The time of
	// all collections during a load is proportional to 1/growth.
	minGrowth, maxGrowth = 15, 800
	// defaultGrowth is the default of the runtime.
	defaultGrowth = 100
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

// tuneCollector adapts GOGC to the size of the live heap after each collection, for the
// life of the process. A memory limit alone would cause continuous collections when the live
// heap approaches it.
func tuneCollector() {
	if os.Getenv("GOGC") != "" {
		return // the administrator configures the collector
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	current := defaultGrowth
	afterCollections(func() {
		metrics.Read(live)
		if wanted := growth(live[0].Value.Uint64()); wanted != current {
			current = wanted
			debug.SetGCPercent(wanted)
		}
	})
}

// afterCollections calls f after each collection: each frees the object of the previous
// call.
func afterCollections(f func()) {
	runtime.AddCleanup(new([64]byte), func(f func()) {
		f()
		afterCollections(f)
	}, f)
}

// growth returns the value of GOGC for a live heap in bytes.
func growth(live uint64) int {
	if live == 0 {
		return defaultGrowth
	}
	return int(min(headroom*100/live+minGrowth, maxGrowth))
}
