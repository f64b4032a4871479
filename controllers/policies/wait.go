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
	// maxWait is how long a request waits for what is not loaded, and maxWaiting the
	// maximum of waiting requests: any caller can name a group that does not exist.
	maxWait    = time.Second
	maxWaiting = 64
	// retryAfter is the delay before another attempt of the API server.
	retryAfter = time.Second
)

// group returns the policies of a call group, and waits for a short time if they are not
// loaded: the API server can know of a group before this replica does.
func (s *Store) group(ctx context.Context, key registration.GroupKey) (*policy.Group, error) {
	g, err := s.State().group(key)
	if err == nil {
		return g, nil
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > maxWaiting {
		return nil, err.retryableIn(ctx)
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
			return nil, err.retryableIn(ctx)
		}
	}
}

// waitTimeout leaves time for another attempt within the webhook's timeout.
func waitTimeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(maxWait, time.Until(deadline)/2)
	}
	return maxWait
}

// group returns the policies of a call group. A nil state has none.
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

// NotLoadedError means that this replica cannot evaluate a call group. The request is
// never allowed.
type NotLoadedError struct {
	Group  string // empty before the first load
	Policy string // the missing policy of the group; empty if the whole group is missing

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

// RetryAfter is the delay before another attempt, which the API server makes within the
// timeout, possibly at another replica.
func (e *NotLoadedError) RetryAfter() time.Duration { return e.after }

// retryableIn sets the delay so that another attempt fits into the remaining time.
func (e *NotLoadedError) retryableIn(ctx context.Context) *NotLoadedError {
	out := *e
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*retryAfter {
		out.after = retryAfter
	}
	return &out
}
