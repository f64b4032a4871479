package policies

import (
	"context"
	"fmt"
	"time"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/queue"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	// maxWait is how long a request waits for what is not loaded yet, and
	// maxWaiting how many may do so at a time: anybody can ask for a group that
	// nobody will ever load.
	maxWait    = time.Second
	maxWaiting = 64
	// retryAfter is the pause that API servers are asked for.
	retryAfter = time.Second
)

// group gives who answers for a call group, and waits for a moment where that is
// not loaded yet: the API server may know of a group before this replica does.
func (s *Store) group(ctx context.Context, key registration.GroupKey) (*policy.Group, error) {
	g, err := s.State().group(key)
	if err == nil {
		return g, nil
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > maxWaiting {
		return nil, err.in(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, waitTimeout(ctx))
	defer cancel()
	changed := s.Subscribe(waiting)
	for {
		if g, err = s.State().group(key); err == nil {
			return g, nil
		}
		var late bool
		queue.Yield(ctx, func() {
			select {
			case <-changed:
			case <-waiting.Done():
				late = true
			}
		})
		if late {
			return nil, err.in(ctx)
		}
	}
}

// waitTimeout leaves time for another try within the webhook's timeout.
func waitTimeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(maxWait, time.Until(deadline)/2)
	}
	return maxWait
}

// group gives who answers for a call group. A state that is nil answers for none.
func (s *State) group(key registration.GroupKey) (*policy.Group, *NotLoadedError) {
	if s == nil {
		return nil, &NotLoadedError{}
	}
	if name, ok := s.pending[key]; ok {
		return nil, &NotLoadedError{Group: key.Name, Policy: name}
	}
	if g := s.groups[key]; g != nil {
		return g, nil
	}
	return nil, &NotLoadedError{Group: key.Name}
}

// NotLoadedError says that this replica cannot answer for a call group yet,
// or no longer. It is never answered with "allowed".
type NotLoadedError struct {
	Group  string // empty while nothing is loaded
	Policy string // the one of the group that is missing, if not the whole group is

	after time.Duration
}

// Error implements error.
func (e *NotLoadedError) Error() string {
	switch {
	case e.Group == "":
		return "policies are not loaded yet"
	case e.Policy != "":
		return fmt.Sprintf("policy %q of call group %q is not loaded yet", e.Policy, e.Group)
	}
	return fmt.Sprintf("call group %q is not loaded", e.Group)
}

// RetryAfter tells the server to ask for another try, which the API server
// makes within the webhook's timeout, perhaps at another replica.
func (e *NotLoadedError) RetryAfter() time.Duration { return e.after }

// in sets the pause so that another try fits into the time that is left.
func (e *NotLoadedError) in(ctx context.Context) *NotLoadedError {
	out := *e
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*retryAfter {
		out.after = retryAfter
	}
	return &out
}
