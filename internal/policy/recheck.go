package policy

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Recheck configures how policies that change objects are run again on their own result.
// If a policy then changes it again, it is not idempotent: the next update applies its
// mutations a second time.
type Recheck struct {
	// First is the number of first changes of a policy that are checked. After these, one
	// in Every is.
	First, Every uint64
	// Later runs a check with a deadline of its own, or omits it. No request waits for a
	// check.
	Later func(check func(ctx context.Context))
	// Found gets each policy that changed its own result again.
	Found func(Repeat)
}

// Repeat is a policy that changed its own result again.
type Repeat struct {
	Policy     string
	UID        types.UID
	Generation int64
	// Mutations holds the indices of the mutations that did.
	Mutations []int
}

// due reports whether to check the latest change of a policy.
func (r *Recheck) due(c *Compiled) bool {
	if r == nil {
		return false
	}
	n := c.changes.Add(1)
	return n <= r.First || n%r.Every == 0
}

// recheck checks the steps with a result. The request must have been answered: the check
// changes it.
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
