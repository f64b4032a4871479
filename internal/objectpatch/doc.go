// Package objectpatch compares an object before and after a mutation: it computes the
// JSON patch for the API server, and checks that the result still fits the Go type of its
// kind.
//
// Patches of requests come from objects that a tenant has written, so their computation is
// bounded and exact. That is why the package has its own diff: gomodules.xyz/jsonpatch
// rewrites a list by position after an insertion at its start and reports 1 and 1.0 as a
// change, and github.com/wI2L/jsondiff decodes integers to float64, so that it misses
// changes above 2^53, and aligns lists without a limit (1.3 s for two lists of 2,000
// objects).
package objectpatch
