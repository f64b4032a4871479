package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// asked is what a load asks.
type asked interface {
	ask(ctx context.Context, template []byte, number int64) (verdict, error)
}

// load is callers that ask again and again, each as soon as it has its answer.
type load struct {
	target   asked
	body     []byte
	want     verdict
	callers  int
	duration time.Duration
}

// figures are what one load came to.
type figures struct {
	requests    int
	p50, p99    time.Duration
	rate        float64       // requests a second
	cpu         time.Duration // of the server, per request
	behind      time.Duration // likewise, of a server that it asks in turn
	latencies   []time.Duration
	firstFailed error
}

// measure lets a load run, after a little of it to warm up, and says what it
// cost the server and those that it asks in turn. An answer that is wrong fails
// the measurement.
func (l load) measure(ctx context.Context, pid int, behind ...int) (figures, error) {
	warmUp := l
	warmUp.duration = min(l.duration, 500*time.Millisecond)
	if f := warmUp.run(ctx); f.firstFailed != nil {
		return f, f.firstFailed
	}
	before, err := cpuTime(pid)
	behindBefore, behindErr := cpuTimes(behind)
	if err := errors.Join(err, behindErr); err != nil {
		return figures{}, err
	}
	start := time.Now()
	f := l.run(ctx)
	elapsed := time.Since(start)
	after, err := cpuTime(pid)
	behindAfter, behindErr := cpuTimes(behind)
	err = errors.Join(err, behindErr)
	switch {
	case ctx.Err() != nil:
		return f, context.Cause(ctx)
	case f.firstFailed != nil:
		return f, f.firstFailed
	case err != nil:
		return f, err
	}
	f.requests = len(f.latencies)
	slices.Sort(f.latencies)
	f.p50, f.p99 = f.latencies[f.requests/2], f.latencies[f.requests*99/100]
	f.rate = float64(f.requests) / elapsed.Seconds()
	f.cpu = (after - before) / time.Duration(f.requests)
	f.behind = (behindAfter - behindBefore) / time.Duration(f.requests)
	return f, nil
}

// run ends early at the first answer that is wrong.
func (l load) run(ctx context.Context) figures {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(l.duration)
	var number atomic.Int64
	parts := make([]figures, l.callers)
	var wait sync.WaitGroup
	for i := range parts {
		wait.Go(func() {
			if parts[i].firstFailed = l.callUntil(ctx, end, &number, &parts[i].latencies); parts[i].firstFailed != nil {
				cancel()
			}
		})
	}
	wait.Wait()
	var all figures
	for _, part := range parts {
		all.latencies = append(all.latencies, part.latencies...)
		if all.firstFailed == nil {
			all.firstFailed = part.firstFailed
		}
	}
	return all
}

// callUntil asks at least once.
func (l load) callUntil(ctx context.Context, end time.Time, number *atomic.Int64, latencies *[]time.Duration) error {
	for {
		begin := time.Now()
		v, err := l.target.ask(ctx, l.body, number.Add(1))
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // another caller says why
		case err != nil:
			return err
		case v != l.want:
			return fmt.Errorf("wrong answer: got %+v, want %+v", v, l.want)
		}
		now := time.Now()
		*latencies = append(*latencies, now.Sub(begin))
		if now.After(end) {
			return nil
		}
	}
}
