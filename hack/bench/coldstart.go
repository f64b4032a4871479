package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

const (
	hammers = 4
	// hammerOn is how long the hammers go on after all is enforced.
	hammerOn = 2 * time.Second
)

// coldStart is what callers see of a manager that is killed and started again
// while they ask about a pod that is to be refused.
type coldStart struct {
	ready    time.Duration // from its start until it says that it is ready
	enforced time.Duration // likewise, until the first answer that is complete

	wrongBefore, wrongAfter int // answers "allowed", before and after ready
	partial                 int // refusals that do not name every policy
	complete                int
	unavailable             int // answers 503: not ready yet
	failed                  int // answers that are anything else
	noConnection            int
}

// wrong is how many pods were admitted.
func (c coldStart) wrong() int { return c.wrongBefore + c.wrongAfter }

func (w *world) measureColdStarts(ctx context.Context, t target) ([]coldStart, error) {
	var out []coldStart
	for round := range w.options.rounds {
		c, err := w.coldStart(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("cold start: %w", err)
		}
		w.log.Printf("Cold start %d of %d: ready after %s, all enforced after %s, %d wrong answers, %d complete, %d partial, %d unavailable, %d without a connection",
			round+1, w.options.rounds, seconds(c.ready), seconds(c.enforced), c.wrong(), c.complete, c.partial, c.unavailable, c.noConnection)
		out = append(out, c)
	}
	return out, nil
}

func (w *world) coldStart(ctx context.Context, t target) (coldStart, error) {
	body, err := bench.Review(bench.Bad)
	if err != nil {
		return coldStart{}, err
	}
	want, err := t.ask(ctx, body, 0)
	if err != nil || want.allowed {
		return coldStart{}, fmt.Errorf("the pod was not refused before: %w", errors.Join(err))
	}
	w.manager.Kill()
	h := &hammer{target: t, body: body, want: want, start: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	stop := h.begin(ctx)
	err = w.startManager(ctx)
	h.setReady()
	if err == nil {
		err = w.await(ctx, 10*time.Millisecond, "all policies are enforced", func() (bool, error) { return h.enforced(), nil })
	}
	if err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(hammerOn):
		}
	}
	stop()
	return h.seen, err
}

// hammer asks again and again, whatever state the manager is in.
type hammer struct {
	target target
	body   []byte
	want   verdict // the complete answer
	start  time.Time

	mu   sync.Mutex
	seen coldStart
}

// begin starts the callers; the returned function ends them.
func (h *hammer) begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	for range hammers {
		wait.Go(func() {
			for ctx.Err() == nil {
				v, err := h.target.ask(ctx, h.body, 0)
				if ctx.Err() != nil {
					return
				}
				h.count(v, err)
				if err != nil {
					time.Sleep(time.Millisecond) // leave the manager a processor
				}
			}
		})
	}
	return func() { cancel(); wait.Wait() }
}

func (h *hammer) count(v verdict, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var status *statusError
	switch {
	case errors.As(err, &status) && status.code == http.StatusServiceUnavailable:
		h.seen.unavailable++
	case errors.As(err, &status):
		h.seen.failed++
	case err != nil:
		h.seen.noConnection++
	case v.allowed && h.seen.ready == 0:
		h.seen.wrongBefore++
	case v.allowed:
		h.seen.wrongAfter++
	case v != h.want:
		h.seen.partial++
	default:
		if h.seen.complete++; h.seen.enforced == 0 {
			h.seen.enforced = time.Since(h.start)
		}
	}
}

func (h *hammer) setReady() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.ready = time.Since(h.start)
}

func (h *hammer) enforced() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen.complete > 0
}
