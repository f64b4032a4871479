package policy

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Recheck says how policies that change objects are run once more, each on its
// own result. A policy that then changes it again is not idempotent: where it is
// invoked twice, as on the next update, its mutations are applied twice.
type Recheck struct {
	// First is how many of a policy's first changes are checked, and Every that
	// one in so many is after them.
	First, Every uint64
	// Later runs a check beside the requests, with a time of its own, or leaves
	// it: no request waits for one.
	Later func(check func(ctx context.Context))
	// Found is told of each policy that changed its own result again.
	Found func(Repeat)
}

// Repeat is a policy that changed its own result again.
type Repeat struct {
	Policy     string
	UID        types.UID
	Generation int64
	// Mutations are the indices of those that did.
	Mutations []int
}

// due reports whether the change that a policy has just made is to be checked.
func (r *Recheck) due(c *Compiled) bool {
	if r == nil {
		return false
	}
	n := c.changes.Add(1)
	return n <= r.First || n%r.Every == 0
}

// recheck checks the steps whose result is kept. The request must be answered
// by then: from here on it belongs to the check.
func recheck(r *request, steps []step, host Environment) {
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.result == nil })
	if len(steps) == 0 {
		return
	}
	host.Panicked = nil
	host.Recheck.Later(func(ctx context.Context) {
		r.authorizer = newRequestAuthorizer(ctx, r.raw, host)
		for i := range steps {
			s := &steps[i]
			r.versioned.UpdateObject(s.result)
			if s.run(ctx, r, host) == DecisionMutate {
				c := s.policy
				host.Recheck.Found(Repeat{Policy: c.name, UID: c.uid, Generation: c.generation, Mutations: s.again})
			}
		}
	})
}
