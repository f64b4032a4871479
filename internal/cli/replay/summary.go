package replay

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxRows is the maximum number of rows. Others are counted together.
	maxRows = 10_000
	// maxText is the maximum of bytes of a text from the log.
	maxText = 253
	// others is the user, namespace and resource of requests beyond maxRows.
	others = "(others)"
)

// Key is what rows are counted by.
type Key struct {
	Policy string `json:"policy"`
	// Before is the decision of the other policies of a comparison.
	Before    string `json:"before,omitempty"`
	Decision  string `json:"decision"`
	User      string `json:"user,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Resource  string `json:"resource,omitempty"`
}

// Example is one request of a row: the first one in the log.
type Example struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	AuditID string `json:"auditID"`
	Time    string `json:"time"`
	Object  string `json:"object"`
	Message string `json:"message,omitempty"`

	order int // of the batch
}

func compareExamples(a, b *Example) int {
	return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Line, b.Line))
}

// Row counts requests.
type Row struct {
	Key
	Count   int     `json:"count"`
	Example Example `json:"example"`
}

// Summary is the result of a replay.
type Summary struct {
	// Events are all events, and Requests those that were replayed.
	Events   int `json:"events"`
	Requests int `json:"requests"`
	// Skipped counts the events that were not replayed, by the reason. Reads are not among
	// them.
	Skipped map[string]int `json:"skipped,omitempty"`
	// Truncated is true if the last line of a file is incomplete.
	Truncated bool `json:"truncated,omitempty"`
	// Malformed counts the lines that are no audit events. FirstMalformed is the first.
	Malformed      int       `json:"malformed,omitempty"`
	FirstMalformed *LogError `json:"firstMalformed,omitempty"`
	// Decisions counts the decisions of each policy.
	Decisions map[string]map[string]int `json:"decisions"`
	Rows      []Row                     `json:"rows"`

	rows map[Key]*Row
}

func newSummary() *Summary {
	return &Summary{Skipped: map[string]int{}, Decisions: map[string]map[string]int{}, rows: map[Key]*Row{}}
}

func (s *Summary) decide(policy, decision string) {
	byDecision := s.Decisions[policy]
	if byDecision == nil {
		byDecision = map[string]int{}
		s.Decisions[policy] = byDecision
	}
	byDecision[decision]++
}

// malformed counts a line that is no audit event.
func (s *Summary) malformed(here place, text string) {
	if s.Malformed++; s.FirstMalformed == nil {
		s.FirstMalformed = &LogError{File: here.file, Line: here.line, Text: text, order: here.order}
	}
}

// count counts a request. It calls example for the first one of a row.
func (s *Summary) count(k Key, example func() Example) {
	k.User, k.Namespace, k.Resource = truncate.String(k.User, maxText), truncate.String(k.Namespace, maxText), truncate.String(k.Resource, maxText)
	row := s.row(k)
	if row.Count == 0 {
		row.Example = example()
	}
	row.Count++
}

func (s *Summary) row(k Key) *Row {
	if row := s.rows[k]; row != nil {
		return row
	}
	if len(s.rows) >= maxRows {
		k.User, k.Namespace, k.Resource = others, others, others
		if row := s.rows[k]; row != nil {
			return row
		}
	}
	row := &Row{Key: k}
	s.rows[k] = row
	return row
}

// add adds the counts of another summary.
func (s *Summary) add(other *Summary) {
	s.Events += other.Events
	s.Requests += other.Requests
	s.Truncated = s.Truncated || other.Truncated
	s.Malformed += other.Malformed
	if other.FirstMalformed != nil && (s.FirstMalformed == nil || other.FirstMalformed.order < s.FirstMalformed.order) {
		s.FirstMalformed = other.FirstMalformed
	}
	for reason, n := range other.Skipped {
		s.Skipped[reason] += n
	}
	for policy, byDecision := range other.Decisions {
		if s.Decisions[policy] == nil {
			s.Decisions[policy] = map[string]int{}
		}
		for decision, n := range byDecision {
			s.Decisions[policy][decision] += n
		}
	}
	for k, theirs := range other.rows {
		s.row(k).merge(theirs)
	}
}

// merge adds the requests of another row.
func (r *Row) merge(other *Row) {
	if r.Count == 0 || compareExamples(&other.Example, &r.Example) < 0 {
		r.Example = other.Example
	}
	r.Count += other.Count
}

// Shorten counts the rows by policy, namespace and decision alone.
func (s *Summary) Shorten() {
	short := newSummary()
	for _, row := range s.rows {
		k := row.Key
		k.User, k.Resource = "", ""
		short.row(k).merge(row)
	}
	s.rows = short.rows
	s.finish()
}

// finish sorts the rows: by policy, and the most frequent first.
func (s *Summary) finish() {
	s.Rows = make([]Row, 0, len(s.rows))
	for _, row := range s.rows {
		s.Rows = append(s.Rows, *row)
	}
	slices.SortFunc(s.Rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), cmp.Compare(b.Count, a.Count), strings.Compare(a.Before, b.Before), strings.Compare(a.Decision, b.Decision),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Resource, b.Resource), strings.Compare(a.User, b.User))
	})
}
