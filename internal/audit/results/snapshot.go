package results

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ostiary/ostiary/internal/policy"
)

// Snapshot is the state of a Table at a time. It shares no memory with the Table that changes.
type Snapshot struct {
	Counts   map[Pair]Counts
	Lines    map[Pair][]Line
	Problems map[string]Problem // by policy
	// Scans are those of each policy that is evaluated.
	Scans map[string]Scan
	// Pending has the generations whose first scan has not ended, by policy. Other results of the
	// policy are those of an earlier generation.
	Pending map[string]Subject
	// Incomplete is the number of resources that were not listed completely.
	Incomplete int
	// IsComplete means that a pass of every resource has ended, except of those that cannot be listed.
	IsComplete bool
}

// Scan is what is known about the scans of the resources of one policy.
type Scan struct {
	// Subject is what is to be evaluated.
	Subject Subject
	// Time is the end of the least recent complete scan; zero if there is none.
	Time time.Time
	// Compiled is what the results are of; nil while they are not all of the current version.
	Compiled *policy.Compiled
	// Running means that the results are not all of the current version of the policy.
	Running bool
	// IsMixed means that some verdicts can be of an earlier generation of the policy.
	IsMixed bool
	// Failures are those of the resources that could not be read completely. IsDenied means
	// that Ostiary lacks the permission for one of them.
	Failures []string
	IsDenied bool
	// Mutates means that mutations are evaluated.
	Mutates bool
}

// After returns a snapshot whose results of each policy are of one generation. While the current
// version of a policy is being scanned, they are those of the previous snapshot. If a resource cannot
// be read, so that verdicts of an earlier generation stay, there are none.
func (s Snapshot) After(previous Snapshot) Snapshot {
	after := s
	after.Scans, after.Problems, after.Pending = maps.Clone(s.Scans), map[string]Problem{}, map[string]Subject{}
	maps.Copy(after.Problems, s.Problems)
	isKept := map[string]bool{} // by policy whose current results are not shown
	for policy, scan := range s.Scans {
		switch {
		case scan.Running:
			isKept[policy] = after.keep(policy, previous)
		case scan.IsMixed:
			isKept[policy] = false
		}
	}
	after.Counts = mergePairs(s.Counts, previous.Counts, isKept)
	after.Lines = mergePairs(s.Lines, previous.Lines, isKept)
	return after
}

// keep replaces what the snapshot says about a policy by what an earlier one says, and reports
// whether that is about the same object.
func (s Snapshot) keep(policy string, earlier Snapshot) bool {
	current := s.Scans[policy].Subject
	delete(s.Scans, policy)
	delete(s.Problems, policy)
	known, ok := earlier.subject(policy)
	if !ok || known != current {
		s.Pending[policy] = current
	}
	if !ok || known.UID != current.UID {
		return false
	}
	if scan, ok := earlier.Scans[policy]; ok {
		s.Scans[policy] = scan
	}
	if problem, ok := earlier.Problems[policy]; ok {
		s.Problems[policy] = problem
	}
	return true
}

// subject returns the generation that the results of a policy are about.
func (s Snapshot) subject(policy string) (Subject, bool) {
	if scan, ok := s.Scans[policy]; ok {
		return scan.Subject, true
	}
	problem, ok := s.Problems[policy]
	return problem.Subject, ok
}

// mergePairs returns the current values, without those of the policies in isKept, and the previous
// values of those for which it is true.
func mergePairs[V any](current, previous map[Pair]V, isKept map[string]bool) map[Pair]V {
	if len(isKept) == 0 {
		return current
	}
	out := make(map[Pair]V, len(current))
	for pair, value := range current {
		if _, isReplaced := isKept[pair.Policy]; !isReplaced {
			out[pair] = value
		}
	}
	for pair, value := range previous {
		if isKept[pair.Policy] {
			out[pair] = value
		}
	}
	return out
}

// missing returns what the results of a policy do not include, and why.
func (s Snapshot) missing(policy string) []string {
	all := slices.Clone(s.Scans[policy].Failures)
	if problem, ok := s.Problems[policy]; ok {
		all = append(all, problem.Why)
	}
	return boundedMissing(all)
}

// pending says that a generation of a policy has no results yet; "" if it has.
func (s Snapshot) pending(policy string) string {
	waiting, isPending := s.Pending[policy]
	if !isPending {
		return ""
	}
	text := fmt.Sprintf("generation %d has not been evaluated on all stored objects yet", waiting.Generation)
	if shown, ok := s.subject(policy); ok {
		text += fmt.Sprintf(": the results are of generation %d", shown.Generation)
	}
	return text
}

// Snapshot returns the current state, in which results of a policy can be of two generations: see
// Snapshot.After.
func (t *Table) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{
		Counts: make(map[Pair]Counts, len(t.counts)), Lines: make(map[Pair][]Line, len(t.lines)),
		Problems: t.problems, // replaced, never changed
		Scans:    map[string]Scan{}, IsComplete: t.isComplete(),
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
	s.IsMixed = s.IsMixed || of.isMixed && len(k.objects) > 0
	s.Mutates = s.Mutates || of.version.Compiled != nil && of.version.Compiled.AuditsMutations()
	switch {
	case k.failure != "":
		s.Failures = append(s.Failures, k.failure)
		s.IsDenied = s.IsDenied || k.denied
	case of.done != of.version:
		s.Running = true
	default:
		s.Compiled = of.version.Compiled
	}
	if !of.time.IsZero() && (s.Time.IsZero() || of.time.Before(s.Time)) {
		s.Time = of.time
	}
	return s
}

// Found is what the last complete scan of a policy has found in some namespaces.
type Found struct {
	// Missing is why not all objects are evaluated; "" if they are.
	Missing string
	// Compiled is what was evaluated; nil before the first scan of this generation.
	Compiled *policy.Compiled
	Count    int64
	Examples []string
}

// Found returns what the scan of a generation of a policy has found in the namespaces that are selected, as they are or if
// they were created again. Cluster-scoped objects are in the namespace "", and a Namespace in itself.
func (s Snapshot) Found(policy string, of Subject, selects func(namespace string) bool) (out Found) {
	scan, isScanned := s.Scans[policy]
	if missing := s.missing(policy); len(missing) > 0 {
		out.Missing = missing[0]
		return out
	}
	if !isScanned || scan.Subject != of {
		return out
	}
	out.Compiled = scan.Compiled
	var namespaces []string
	for pair, c := range s.Counts {
		if n := c.described() - c[Excepted]; pair.Policy == policy && n > 0 && selects(pair.Namespace) {
			namespaces = append(namespaces, pair.Namespace)
			out.Count += n
		}
	}
	slices.Sort(namespaces) // so that equal snapshots have equal examples
	for _, namespace := range namespaces {
		for _, l := range s.Lines[Pair{policy, namespace}] {
			if l.Verdict != Excepted && len(out.Examples) < maxExamples {
				out.Examples = append(out.Examples, (&example{namespace, l}).text())
			}
		}
	}
	return out
}
