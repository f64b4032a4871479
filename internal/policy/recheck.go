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

// recheck checks the steps with a result, those of each subject together. The request must
// have been answered: the check changes its subjects.
func recheck(steps []step, host Environment) {
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.result == nil })
	host.Panicked = nil
	for len(steps) > 0 {
		on := steps[0].on
		var own, others []step
		for _, s := range steps {
			if s.on == on {
				own = append(own, s)
			} else {
				others = append(others, s)
			}
		}
		host.Recheck.Later(func(ctx context.Context) { on.recheck(ctx, own, host) })
		steps = others
	}
}

// recheck runs steps on their own results. Checks of other subjects of the request can run at
// the same time, so the subject gets a request of its own, with an authorizer for ctx.
func (on *subject) recheck(ctx context.Context, steps []step, host Environment) {
	own := *on.request
	own.authorizer = newRequestAuthorizer(ctx, own.raw, host)
	on.request = &own
	for i := range steps {
		s := &steps[i]
		on.versioned.UpdateObject(s.result)
		if s.run(ctx, host) == DecisionMutate {
			c := s.policy
			host.Recheck.Found(Repeat{Policy: c.name, UID: c.uid, Generation: c.generation, Mutations: s.again})
		}
	}
}
