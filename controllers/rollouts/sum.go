package rollouts

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/rollout"
)

// foldInterval is how often the Leases of replicas are read. It is less than shownFor by several times.
const foldInterval = 2 * time.Second

// Sum adds up the counts of all replicas, also of those that have ended since this one started. Every replica runs one, so
// that a new leader knows them. It is safe for concurrent use.
type Sum struct {
	// Live returns all live replicas.
	Live func(context.Context) ([]replicas.Replica, error)
	// Steps returns the keys of the steps in effect.
	Steps func() map[string]struct{}

	mu     sync.Mutex
	from   time.Time // since when counts are added up; zero before the first time
	counts map[countKey]*count
	known  map[string]time.Time // by replica, up to when its counts are known; zero if it does not count
}

// NeedLeaderElection returns false: every replica adds up.
func (s *Sum) NeedLeaderElection() bool { return false }

// Start adds up until ctx ends.
func (s *Sum) Start(ctx context.Context) error {
	tick := time.NewTicker(foldInterval)
	defer tick.Stop()
	for {
		if live, err := s.Live(ctx); err == nil { // the Leases have been read
			s.fold(live, time.Now())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// fold adds what the Leases of replicas have. A replica that does not count leaves its time unknown.
func (s *Sum) fold(live []replicas.Replica, now time.Time) {
	steps := s.Steps()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from.IsZero() {
		s.from, s.counts = now, map[countKey]*count{}
	}
	s.known = make(map[string]time.Time, len(live))
	for i := range live {
		first, lines, _ := strings.Cut(live[i].RolloutCounts, "\n")
		if seconds, err := strconv.ParseInt(first, 10, 64); err == nil {
			s.known[live[i].Name] = time.Unix(seconds, 0)
		} else {
			s.known[live[i].Name] = time.Time{}
		}
		for line := range strings.Lines(lines) {
			if words := strings.Fields(line); len(words) >= 3 {
				s.add(words, steps)
			}
		}
	}
	for key := range s.counts {
		if _, ok := steps[key.step]; !ok || key.isOver(now) {
			delete(s.counts, key)
		}
	}
}

// add adds a line of Recorder.Encode. It ignores one that it cannot read, such as one of a later version.
func (s *Sum) add(words []string, steps map[string]struct{}) {
	number, err := strconv.ParseInt(words[1], 10, 64)
	distinct, ok := rollout.ParseSketch(words[2])
	if _, isWanted := steps[words[0]]; err != nil || !ok || !isWanted {
		return
	}
	key := countKey{words[0], number}
	c := s.counts[key]
	if c == nil {
		if len(s.counts) >= maxCounts {
			return
		}
		c = &count{}
		s.counts[key] = c
	}
	c.merge(distinct, words[3:])
}

// Requests returns the evidence of a step.
func (s *Sum) Requests(step string, now time.Time) rollout.Evidence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from.IsZero() {
		return rollout.Evidence{Missing: "the Leases of the replicas have not been read yet"}
	}
	out := rollout.Evidence{From: s.from, Until: now}
	for _, known := range s.known {
		if known.Before(out.Until) {
			out.Until = known
		}
	}
	var distinct rollout.Sketch
	for _, number := range []int64{periodOf(now) - 1, periodOf(now)} {
		if c := s.counts[countKey{step, number}]; c != nil {
			distinct = distinct.Merge(c.distinct)
			out.Examples = append(out.Examples, c.examples...)
		}
	}
	slices.Sort(out.Examples)
	out.Examples = slices.Compact(out.Examples)
	out.Count, out.IsEstimate = distinct.Count()
	return out
}
