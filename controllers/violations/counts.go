package violations

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// Window is the time that counts cover, in whole hours.
	Window = windowHours * time.Hour

	windowHours = 24
	// maxPairs is the number of pairs of a policy and a namespace that each hour of a replica counts on their own.
	maxPairs = 500
	// maxEncoded bounds the counts of a replica in bytes. They are a part of its Lease, which is written every 4 s.
	maxEncoded = 16 << 10
	// Others is the policy and the namespace of requests beyond the bounds. It is no valid name.
	Others = "(other)"
)

// Finding counts the requests of one policy in one namespace within Window. The namespace is empty for cluster-scoped
// objects.
type Finding struct {
	Policy, Namespace string
	Denied            uint64
	Warned            uint64
	Audited           uint64
	// Failed counts requests that the policy could not evaluate. Its failurePolicy decided them.
	Failed uint64
	// Previewed counts requests whose object the mutations of the policy would have changed.
	Previewed uint64
}

// Counts counts the violations of this replica, by policy and namespace. It is safe for concurrent use, and takes a lock
// only for the first violation of a pair within an hour.
type Counts struct {
	now   func() time.Time
	hours [windowHours]atomic.Pointer[hour]
}

type hour struct {
	number int64    // since 1970
	pairs  sync.Map // pair to *counters
	size   atomic.Int64
	others counters
}

type pair struct{ policy, namespace string }

// numbers are those of requests by decision: denied, warned, audited, failed and previewed.
type numbers [5]uint64

// counters has one counter for each decision.
type counters [len(numbers{})]atomic.Uint64

// NewCounts returns counts of 0.
func NewCounts() *Counts { return &Counts{now: time.Now} }

// Add counts a violation. What passes because of an exception is counted with the exception.
func (c *Counts) Add(v policy.ViolationReport) {
	if v.Decision == policy.DecisionExcepted {
		return
	}
	c.current().of(pair{v.Policy, v.Request.Namespace})[indexOf(v.Decision)].Add(1)
}

func indexOf(d policy.Decision) int {
	switch d {
	case policy.DecisionDeny:
		return 0
	case policy.DecisionWarn:
		return 1
	case policy.DecisionAudit:
		return 2
	case policy.DecisionPreview:
		return 4
	}
	return 3
}

// current returns the current hour. It replaces the one of the previous day.
func (c *Counts) current() *hour {
	number := c.now().Unix() / int64(time.Hour/time.Second)
	slot := &c.hours[number%windowHours]
	for {
		before := slot.Load()
		if before != nil && before.number >= number {
			return before
		}
		if h := (&hour{number: number}); slot.CompareAndSwap(before, h) {
			return h
		}
	}
}

func (h *hour) of(p pair) *counters {
	if known, ok := h.pairs.Load(p); ok {
		return known.(*counters)
	}
	if !isNamespace(p.namespace) {
		return &h.others
	}
	if h.size.Add(1) > maxPairs {
		h.size.Add(-1)
		return &h.others
	}
	p = pair{strings.Clone(p.policy), strings.Clone(p.namespace)}
	added, loaded := h.pairs.LoadOrStore(p, &counters{})
	if loaded {
		h.size.Add(-1)
	}
	return added.(*counters)
}

// isNamespace reports whether objects can have this namespace. A caller can send any text.
func isNamespace(name string) bool { return name == "" || len(validation.IsDNS1123Label(name)) == 0 }

// Encode returns the counts within Window, as one line of bounded length; "" without any.
func (c *Counts) Encode() string {
	oldest := c.now().Unix()/int64(time.Hour/time.Second) - windowHours + 1
	sums := totals{}
	for i := range c.hours {
		h := c.hours[i].Load()
		if h == nil || h.number < oldest {
			continue
		}
		h.pairs.Range(func(key, value any) bool {
			sums.add(key.(pair), value.(*counters).load())
			return true
		})
		sums.add(pair{Others, Others}, h.others.load())
	}
	return encode(sums)
}

func (c *counters) load() (out numbers) {
	for i := range c {
		out[i] = c[i].Load()
	}
	return out
}

// totals are sums by policy and namespace.
type totals map[pair]numbers

func (t totals) add(p pair, more numbers) {
	if more == (numbers{}) {
		return
	}
	sum := t[p]
	for i := range sum {
		sum[i] += more[i]
	}
	t[p] = sum
}

// findings returns the sums, those of the most requests first.
func (t totals) findings() []Finding {
	out := make([]Finding, 0, len(t))
	for p, n := range t {
		out = append(out, Finding{p.policy, p.namespace, n[0], n[1], n[2], n[3], n[4]})
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), strings.Compare(a.Policy, b.Policy), strings.Compare(a.Namespace, b.Namespace))
	})
	return out
}

func (f Finding) total() uint64 { return f.Denied + f.Warned + f.Audited + f.Failed + f.Previewed }

// encoded omits the last number if it is 0.
func (n numbers) encoded() []uint64 {
	if n[len(n)-1] == 0 {
		return n[:len(n)-1]
	}
	return n[:]
}

// encode writes sums as JSON: by policy and namespace, the numbers of denied, warned, audited, failed and previewed
// requests. If they are too long, those of the fewest requests are added up. Versions without the last number ignore it.
func encode(sums totals) string {
	if len(sums) == 0 {
		return ""
	}
	all := sums.findings()
	for keep := len(all); ; keep /= 2 {
		kept, others := totals{}, pair{Others, Others}
		for i, f := range all {
			p := pair{f.Policy, f.Namespace}
			if i >= keep {
				p = others
			}
			kept.add(p, numbers{f.Denied, f.Warned, f.Audited, f.Failed, f.Previewed})
		}
		byPolicy := map[string]map[string][]uint64{}
		for p, n := range kept {
			if byPolicy[p.policy] == nil {
				byPolicy[p.policy] = map[string][]uint64{}
			}
			byPolicy[p.policy][p.namespace] = n.encoded()
		}
		// Maps of strings and numbers can always be encoded.
		if line, err := json.Marshal(byPolicy); err == nil && len(line) <= maxEncoded || keep == 0 {
			return string(line)
		}
	}
}

// Merge adds up the counts of replicas, those of the most requests first. It ignores counts that it cannot read, such as
// those of a later version.
func Merge(all []replicas.Replica) []Finding {
	sums := totals{}
	for _, r := range all {
		var byPolicy map[string]map[string]numbers
		if json.Unmarshal([]byte(r.Violations), &byPolicy) != nil {
			continue
		}
		for policy, namespaces := range byPolicy {
			for namespace, n := range namespaces {
				p := pair{policy, namespace}
				if !isNamespace(namespace) {
					p = pair{Others, Others}
				}
				sums.add(p, n)
			}
		}
	}
	return sums.findings()
}
