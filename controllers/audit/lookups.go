package audit

import (
	"fmt"
	"time"

	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
)

// Lookups find the stored objects that policies look up.
type Lookups interface {
	// Unread returns why nothing is known of the objects of a lookup; "" if they are known.
	Unread(lookups.Definition) string
	// Revision differs if requests can find other objects.
	Revision(lookups.Definition) uint64
	// Snapshot returns lookups whose results do not change.
	Snapshot() policy.Lookups
}

// lookedUp is what the lookups of a policy find at a time.
type lookedUp struct {
	compiled *policy.Compiled
	version  uint64
	at       time.Time
}

// unreadLookups returns why the objects that a policy looks up are not known.
func (s *Scanner) unreadLookups(c *policy.Compiled) string {
	for _, p := range c.LookupNeeds() {
		if s.options.Lookups == nil {
			return "stored objects are not available here"
		}
		if why := s.options.Lookups.Unread(p.Definition); why != "" {
			return why
		}
	}
	return ""
}

// lookupsVersion returns the version of what a policy looks up, and keeps it for the next plan. It changes at most once
// in an interval, because each version evaluates every object of the policy again, while such objects as Pods change all
// the time.
func (s *Scanner) lookupsVersion(last lookedUp, name string, c *policy.Compiled, now time.Time) uint64 {
	needs := c.LookupNeeds()
	if len(needs) == 0 {
		return 0
	}
	if last.compiled == c && now.Sub(last.at) < s.options.Interval {
		s.lookedUp[name] = last
		return last.version
	}
	var parts []string
	for _, p := range needs {
		parts = append(parts, fmt.Sprintf("%q %d", p.Definition, s.options.Lookups.Revision(p.Definition)))
	}
	version := results.Hash(parts...)
	s.lookedUp[name] = lookedUp{compiled: c, version: version, at: now}
	return version
}
