package oracles

import (
	"math/rand/v2"
	"slices"
)

// Author makes objects, requests and policies at random. The same seed and number make the
// same ones.
type Author struct {
	*rand.Rand
	// Words are texts that policies compare, so that objects have them.
	Words []string
}

// NewAuthor returns the author of one case.
func NewAuthor(seed, number uint64) *Author {
	return &Author{Rand: rand.New(rand.NewPCG(seed, number))}
}

// pick returns one of some values.
func pick[T any](a *Author, from ...T) T { return from[a.IntN(len(from))] }

// chance is true once in n times.
func (a *Author) chance(n int) bool { return a.IntN(n) == 0 }

// some returns at least one and at most n of some values, in their order.
func some[T any](a *Author, n int, from ...T) (out []T) {
	wanted := 1 + a.IntN(min(n, len(from)))
	indexes := a.Perm(len(from))[:wanted]
	slices.Sort(indexes)
	for _, i := range indexes {
		out = append(out, from[i])
	}
	return out
}

// object and list are decoded JSON and YAML.
type (
	object = map[string]any
	list   = []any
)
