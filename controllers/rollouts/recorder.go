// Package rollouts collects the evidence that ends steps of rollouts. Every replica counts the owners and objects whose requests
// violate a policy, reports them in its Lease, and adds up the reports of all replicas, so that the next leader knows them, too.
// The statuses, with the steps in effect, belong to controllers/status.
package rollouts

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rollout"
)

const (
	// period is the time that a part of the counts covers. The current and the previous part count, so that no request
	// counts for longer than rollout.Window.
	period = rollout.Window / 2
	// maxEncoded bounds what a replica adds to its Lease, which is written every 4 s, in bytes.
	maxEncoded = 8 << 10
	// shownFor is how long a Lease has a count after its last change at least, so that replicas that miss some versions of the
	// Lease read it.
	shownFor = 15 * time.Second
	// maxCounts is the number of counts that a replica keeps: two for each step in effect.
	maxCounts = 10_000
	// maxExamples is the number of objects that a count names, in one word of at most maxExample bytes each.
	maxExamples, maxExample = 3, 200
)

// countKey identifies a count: the step in effect of a binding, and the number of the period since 1970.
type countKey struct {
	step   string
	period int64
}

func periodOf(t time.Time) int64 { return t.Unix() / int64(period/time.Second) }

// isOver reports whether the count is of neither the current nor the previous period.
func (k countKey) isOver(now time.Time) bool { return k.period < periodOf(now)-1 }

// count has the owners and objects whose requests violate a policy.
type count struct {
	distinct rollout.Sketch
	examples []string
	// changed is the time of the first change that the Lease does not have, and shown since when it has the last one; zero
	// without one.
	changed, shown time.Time
}

// merge adds what another count has.
func (c *count) merge(distinct rollout.Sketch, examples []string) {
	c.distinct = c.distinct.Merge(distinct)
	for _, text := range examples {
		c.addExample(text)
	}
}

func (c *count) addExample(text string) {
	if len(c.examples) < maxExamples && !slices.Contains(c.examples, text) {
		c.examples = append(c.examples, text)
	}
}

// add adds an owner or object. Most requests repeat one, and change nothing.
func (c *count) add(subject string, now time.Time) {
	var isChanged bool
	if c.distinct, isChanged = c.distinct.Add(subject); !isChanged {
		return
	}
	c.addExample(subject)
	if c.changed.IsZero() {
		c.changed, c.shown = now, time.Time{}
	}
}

// Recorder counts the requests to this replica. It is safe for concurrent use.
type Recorder struct {
	// Steps returns the keys of the steps in effect.
	Steps func() map[string]struct{}
	now   func() time.Time

	mu     sync.Mutex
	counts map[countKey]*count
	isFull bool // there was no room for a count
}

// StepsOf returns the function that returns the keys of the steps in effect of policies.
func StepsOf(store *policies.Store) func() map[string]struct{} {
	return func() map[string]struct{} {
		state := store.State()
		if state == nil {
			return nil
		}
		out := map[string]struct{}{}
		for _, e := range state.Entries {
			for i := range e.Policy.Status.Bindings {
				if s := &e.Policy.Status.Bindings[i]; !s.Final {
					out[rollout.EvidenceKey(s.Token)] = struct{}{}
				}
			}
		}
		return out
	}
}

// NewRecorder returns a Recorder without counts.
func NewRecorder(steps func() map[string]struct{}) *Recorder {
	return &Recorder{Steps: steps, now: time.Now, counts: map[countKey]*count{}}
}

// Add counts a request that violates a policy in a step of a rollout. Others cost nothing.
func (r *Recorder) Add(v policy.ViolationReport) {
	if len(v.Evidence) == 0 {
		return
	}
	subject := word(violations.Subject(v.Request))
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, step := range v.Evidence {
		key := countKey{step, periodOf(now)}
		c := r.counts[key]
		if c == nil && len(r.counts) < maxCounts {
			c = &count{}
			r.counts[key] = c
		}
		if c == nil {
			r.isFull = true
			continue
		}
		c.add(subject, now)
	}
}

// word returns the text as one word that can be printed.
func word(text string) string {
	text = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return '?'
	}, text)
	return text[:min(len(text), maxExample)]
}

// Encode returns the counts, one in a line, those that have changed last, and before them the time up to which readers know all
// of them. It returns "" while no rollout is in a step.
func (r *Recorder) Encode() string {
	steps := r.Steps()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for key := range r.counts {
		if _, ok := steps[key.step]; !ok || key.isOver(now) {
			delete(r.counts, key)
		}
	}
	if len(steps) == 0 {
		return ""
	}
	var out strings.Builder
	known := now
	if r.isFull = r.isFull && len(r.counts) >= maxCounts; r.isFull {
		known = time.Unix(0, 0)
	}
	for _, key := range r.inOrder(now) {
		c := r.counts[key]
		line := fmt.Sprintf("%s %d %s %s\n", key.step, key.period, c.distinct, strings.Join(c.examples, " "))
		switch {
		case out.Len()+len(line) <= maxEncoded:
			out.WriteString(line)
			if !c.changed.IsZero() {
				c.changed, c.shown = time.Time{}, now
			}
		case !c.changed.IsZero() && c.changed.Before(known):
			known = c.changed
		}
	}
	return fmt.Sprintf("%d\n", known.Unix()) + out.String()
}

// inOrder returns first what the Lease does not have, then what it has not had for long, and then the rest, each of them by time.
func (r *Recorder) inOrder(now time.Time) []countKey {
	rank := func(c *count) int {
		switch {
		case !c.shown.IsZero() && c.changed.IsZero() && now.Sub(c.shown) < shownFor:
			return 0 // replicas that have not read it yet would lose it
		case !c.changed.IsZero():
			return 1
		}
		return 2
	}
	keys := make([]countKey, 0, len(r.counts))
	for key := range r.counts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b countKey) int {
		x, y := r.counts[a], r.counts[b]
		if byRank := rank(x) - rank(y); byRank != 0 {
			return byRank
		}
		if byTime := x.changed.Compare(y.changed); byTime != 0 {
			return byTime
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return keys
}
