package main

import (
	"fmt"
	"runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/bench"
)

// compiledSize is what a compiled policy with an expression of its own keeps in
// memory, in KiB.
type compiledSize struct{ plain, variables float64 }

// variablePolicies bounds the time that compiling takes.
const variablePolicies = 200

func measureCompiled() (*compiledSize, error) {
	policies, err := bench.Policies(bench.Probes)
	if err != nil {
		return nil, err
	}
	var s compiledSize
	if s.plain, err = sizeOf(policies); err != nil {
		return nil, err
	}
	s.variables, err = sizeOf(bench.WithVariables(policies[:variablePolicies]))
	return &s, err
}

func sizeOf(policies []*v1alpha1.WebhookPolicy) (float64, error) {
	compiler := policy.NewCompiler()
	compiled := make([]*policy.Compiled, len(policies))
	before := heapInUse()
	for i, p := range policies {
		c, errs := compiler.Compile(p)
		if len(errs) > 0 {
			return 0, fmt.Errorf("compiling %s: %w", p.Name, errs.ToAggregate())
		}
		compiled[i] = c
	}
	size := float64(heapInUse()-before) / 1024 / float64(len(policies))
	runtime.KeepAlive(compiled)
	runtime.KeepAlive(compiler)
	return size, nil
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // cleanups of the first run may free more
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
