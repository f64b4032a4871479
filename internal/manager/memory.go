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
	// headroom is how much may be allocated between two garbage collections at
	// the least. A small set of policies lives in a few MiB; by the runtime's
	// own rule, which is to collect when the heap has doubled, answering
	// requests would then be interrupted many times a second.
	headroom = 20 << 20 // bytes
	// The heap's growth stays between these, in per cent of what lives in it:
	// a heap of many policies need not double for the headroom.
	minGrowth, maxGrowth = 20, 800
	// defaultGrowth is the runtime's own.
	defaultGrowth = 100
	tuneEvery     = time.Second
)

// ofLimit is the part of the container's memory that the heap may have: the rest
// is for stacks, the program itself, and what the runtime does not count.
const ofLimit = 0.88

// LimitMemory has the garbage collector work harder near the limit of the
// container's memory, before the kernel ends the process. It follows the limit,
// whatever that is; GOMEMLIMIT, where it is set, counts instead. Without either
// there is no limit.
func LimitMemory(container memlimit.Provider, log logr.Logger) {
	limit, err := memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(ofLimit))
	if err != nil {
		log.Info("the container's limit of memory is not known", "reason", err.Error())
		return
	}
	log.Info("memory", "limit", limit)
}

// tuneCollector adapts the garbage collector to how much lives on the heap,
// until ctx ends. A limit of memory instead would collect without a pause once
// the living part comes near it.
func tuneCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil // somebody has decided already
	}
	ticker := time.NewTicker(tuneEvery)
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

// growth is how much the heap may grow before it is collected, in per cent of
// what lives in it: the headroom, within bounds.
func growth(live uint64) int {
	if live == 0 {
		return defaultGrowth
	}
	return int(min(max(headroom*100/live, minGrowth), maxGrowth))
}
