package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is one operation on a policy of the walk, and the answer that it asks for.
type step struct {
	kind  string // create, update or delete
	say   string // the message of the denial, "" where requests are allowed
	spec  walkSpec
	begin time.Time
	// settled is when it was seen to take effect, or to be gone, on every replica; zero
	// where the next step came before.
	settled time.Time
}

func (s step) want() string { return expected(s.say) }

func expected(say string) string {
	if say == "" {
		return "allowed"
	}
	return fmt.Sprintf("denied: %q", say)
}

// reply is what a request for a slot met.
type reply struct {
	begin, end time.Time
	say        string // as in step
	failed     string // the API server's error where it got no answer
	other      string // anything else
}

func (r reply) String() string {
	switch {
	case r.other != "":
		return "other: " + r.other
	case r.failed != "":
		return "no answer: " + r.failed
	default:
		return expected(r.say)
	}
}

// history is all that happened to one slot, in the order of time.
type history struct {
	mu      sync.Mutex
	steps   []step
	replies []reply
}

func (h *history) begin(s step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, s)
}

func (h *history) last() step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.steps[len(h.steps)-1]
}

// settle notes that the last step has taken effect.
func (h *history) settle(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := &h.steps[len(h.steps)-1]; last.settled.IsZero() {
		last.settled = now
	}
}

func (h *history) record(r reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replies = append(h.replies, r)
}

// outage is when connections to a replica that was killed may have broken.
type outage struct{ begin, end time.Time }

// walkCounts are what the replies of a walk come to.
type walkCounts struct {
	strict, moving int // answers with one right answer, and with several
	unreachable    int
	wrong          []string
}

// check compares every reply with what it may be: what the last step that was
// settled before the request asks for, or any later step that began before the
// answer. Where no step was under way that is one answer only.
func (h *history) check(outages []outage, sum *walkCounts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range h.replies {
		var may []string
		for _, s := range h.steps {
			switch {
			case !s.settled.IsZero() && s.settled.Before(r.begin):
				may = []string{s.want()}
			case s.begin.Before(r.end):
				may = append(may, s.want())
			}
		}
		switch {
		case r.failed != "" && during(r, outages):
			sum.unreachable++
		case slices.Contains(may, r.String()):
			if len(may) == 1 {
				sum.strict++
			} else {
				sum.moving++
			}
		default:
			sum.wrong = append(sum.wrong, fmt.Sprintf("got %s, want %s\n%s", r, strings.Join(may, " or "), h.around(i)))
		}
	}
}

func during(r reply, outages []outage) bool {
	return slices.ContainsFunc(outages, func(o outage) bool { return r.begin.Before(o.end) && r.end.After(o.begin) })
}

// around tells the history of the slot before and after a reply.
func (h *history) around(reply int) string {
	type line struct {
		at   time.Time
		text string
	}
	r := h.replies[reply]
	var lines []line
	for _, s := range h.steps {
		lines = append(lines, line{s.begin, fmt.Sprintf("%s: %s, timeout %d s, rules %d", s.kind, s.want(), s.spec.timeout, s.spec.rules)})
		if !s.settled.IsZero() {
			lines = append(lines, line{s.settled, "settled"})
		}
	}
	for i, r := range h.replies[max(0, reply-5):min(len(h.replies), reply+6)] {
		mark := ""
		if i == reply-max(0, reply-5) {
			mark = "  <<<"
		}
		lines = append(lines, line{r.begin, fmt.Sprintf("request, answered after %s: %s%s", r.end.Sub(r.begin).Round(time.Millisecond), r, mark)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	at := slices.IndexFunc(lines, func(l line) bool { return strings.HasSuffix(l.text, "<<<") })
	var out strings.Builder
	for _, l := range lines[max(0, at-15):min(len(lines), at+10)] {
		fmt.Fprintf(&out, "    %+9.3fs  %s\n", l.at.Sub(r.begin).Seconds(), l.text)
	}
	return out.String()
}
