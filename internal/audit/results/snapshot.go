package results

import (
	"slices"
	"time"
)

// Snapshot is the state of a Table at a time. It shares no memory with the Table that changes.
type Snapshot struct {
	Counts   map[Pair]Counts
	Lines    map[Pair][]Line
	Problems map[string]Problem // by policy
	// Scans are those of each policy that is evaluated.
	Scans map[string]Scan
	// Incomplete is the number of resources that were not listed completely.
	Incomplete int
}

// Scan is what is known about the scans of the resources of one policy.
type Scan struct {
	// Subject is what is to be evaluated.
	Subject Subject
	// Time is the end of the least recent complete scan; zero if there is none.
	Time time.Time
	// Running means that the results are not all of the current version of the policy.
	Running bool
	// IsOutdated means that some results are of an earlier generation of the policy, because a
	// resource cannot be read.
	IsOutdated bool
	// Failures are those of the resources that could not be read completely. IsDenied means
	// that Ostiary lacks the permission for one of them.
	Failures []string
	IsDenied bool
}

// Snapshot returns the current state.
func (t *Table) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{
		Counts: make(map[Pair]Counts, len(t.counts)), Lines: make(map[Pair][]Line, len(t.lines)),
		Problems: t.problems, // replaced, never changed
		Scans:    map[string]Scan{},
	}
	for pair, c := range t.counts {
		s.Counts[pair] = *c
	}
	for pair, list := range t.lines {
		s.Lines[pair] = slices.Clone(list)
	}
	for _, known := range t.resources {
		if known.failure != "" {
			s.Incomplete++
		}
		for i := range known.slots {
			name := known.slots[i].policy
			s.Scans[name] = known.addTo(s.Scans[name], &known.slots[i])
		}
	}
	return s
}

// addTo returns a scan with what is known about a policy on this resource.
func (k *resource) addTo(s Scan, of *slot) Scan {
	s.Subject = of.version.Subject
	s.IsOutdated = s.IsOutdated || of.done != Version{} && of.done.Subject != s.Subject
	switch {
	case k.failure != "":
		s.Failures = append(s.Failures, k.failure)
		s.IsDenied = s.IsDenied || k.denied
	case of.done != of.version:
		s.Running = true
	}
	if !of.time.IsZero() && (s.Time.IsZero() || of.time.Before(s.Time)) {
		s.Time = of.time
	}
	return s
}
