package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
)

const (
	// rate is how many requests begin each second, whatever becomes of them.
	rate = 100
	// maxOpen bounds those that are under way; beyond that they are not sent, and
	// count as failed, unless API servers cannot answer.
	maxOpen = 2000
	// requestTimeout is longer than any webhook's.
	requestTimeout = 20 * time.Second

	userAgent = "ostiary-chaos"
	marked    = `"marked":"yes"`
)

type verb string

const (
	create verb = http.MethodPost
	update verb = http.MethodPut
	remove verb = http.MethodDelete
)

// request is one of the load, and what has become of it.
type request struct {
	place, server int
	verb          verb
	name          string
	sent          time.Time
	disturbed     bool // the harness kept API servers from working when it was sent

	id      string // of its audit event, for the last attempt
	code    int    // 0: no answer
	outcome outcome
	wrong   bool
	broke   bool // its connection, or that of the webhook

	answered time.Time
	said     string // what went wrong
}

func (r *request) bad() bool { return strings.HasPrefix(r.name, "bad") }

type outcome string

// What an attempt can come to.
const (
	allowed outcome = "allowed"
	denied  outcome = "denied by the policy"
	// refused is a denial that is not the policy's.
	refused outcome = "refused"
	// unmarked was allowed without the change that a policy makes.
	unmarked outcome = "allowed unchanged"
	// failed is a webhook that could not be called.
	failed outcome = "failed"
	// unserved is what API servers fail at that the harness keeps from working.
	unserved outcome = "unserved"
)

// sender sends requests.
type sender struct {
	world   *world
	clients []*http.Client
	hosts   []string
}

func newSender(t *testing.T, w *world) *sender {
	s := &sender{world: w}
	for i := range apiServers {
		config := w.plane.Config(i)
		config.Timeout = requestTimeout
		config.UserAgent = userAgent
		c, err := rest.HTTPClientFor(config)
		must(t, err)
		s.clients = append(s.clients, c)
		s.hosts = append(s.hosts, config.Host)
	}
	return s
}

func (r *request) make(ctx context.Context, host string) (*http.Request, error) {
	url := host + "/api/v1/namespaces/" + place(r.place) + "/configmaps"
	if r.verb != create {
		url += "/" + r.name
	}
	var body []byte
	if r.verb != remove {
		body = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"a":"c"}}`, r.name, place(r.place))
	}
	req, err := http.NewRequestWithContext(ctx, string(r.verb), url+"?dryRun=All", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.id = uuid.NewString()
	req.Header.Set("Audit-Id", r.id)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", userAgent)
	return req, nil
}

// attempt sends a request to an API server. The text is what went wrong.
func (s *sender) attempt(ctx context.Context, r *request, server int) (outcome, string) {
	r.code = 0
	req, err := r.make(ctx, s.hosts[server])
	if err != nil {
		return failed, err.Error()
	}
	resp, err := s.clients[server].Do(req)
	if err != nil {
		return s.own(r, err.Error())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return s.own(r, err.Error())
	}
	r.code = resp.StatusCode
	return s.classify(r, body)
}

// classify returns the outcome of an answer.
func (s *sender) classify(r *request, body []byte) (outcome, string) {
	if r.code < 300 {
		if mutates(r.place) && r.verb != remove && !strings.Contains(string(body), marked) {
			return unmarked, string(body)
		}
		return allowed, ""
	}
	var status struct{ Message string }
	_ = json.Unmarshal(body, &status)
	text := fmt.Sprintf("%d: %s", r.code, status.Message)
	switch {
	case strings.Contains(text, "denied the request: ") && strings.Contains(text, "WebhookPolicy '"+place(r.place)+"'"):
		return denied, text
	case strings.Contains(text, "failed calling webhook"), strings.Contains(text, "unable to load root certificates"):
		return failed, text
	case strings.Contains(text, "denied the request: "):
		return refused, text
	}
	return s.own(r, text)
}

// own classifies a failure of the API server itself. A request that was sent while
// API servers could not work may end only after they work again.
func (s *sender) own(r *request, text string) (outcome, string) {
	if r.disturbed || s.world.disturbed.Load() {
		return unserved, text
	}
	return failed, text
}

// load sends requests until it is stopped, and keeps them.
type load struct {
	sender *sender
	stop   func()

	open atomic.Int64
	mu   sync.Mutex
	done []*request
}

// newLoad starts sending.
func (w *world) newLoad(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{sender: newSender(t, w)}
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				group.Go(func() { l.send(context.WithoutCancel(ctx), next(n)) })
			}
		}
	})
	l.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
		for _, c := range l.sender.clients {
			c.CloseIdleConnections()
		}
	})
	t.Cleanup(l.stop)
	return l
}

// next is the nth request: to either API server in turn, to any place, two of
// five about what exists, every other one bad.
func next(n int) *request {
	r := &request{server: n % apiServers, place: rand.IntN(places), name: fmt.Sprintf("good-%d", n), verb: create}
	if rand.IntN(2) == 0 {
		r.name = fmt.Sprintf("bad-%d", n)
	}
	if kind := rand.IntN(5); kind < 2 {
		r.verb = []verb{update, remove}[kind]
		r.name, _, _ = strings.Cut(r.name, "-")
		r.name += "-kept"
	}
	return r
}

func (l *load) send(ctx context.Context, r *request) {
	r.sent, r.disturbed = time.Now(), l.sender.world.disturbed.Load()
	text := ""
	defer l.open.Add(-1)
	if l.open.Add(1) > maxOpen {
		r.outcome, text = l.sender.own(r, "not sent: too many are under way")
		l.keep(r, text)
		return
	}
	r.outcome, text = l.sender.attempt(ctx, r, r.server)
	if r.outcome == unserved {
		// What any client does whose API server is gone: ask the other one.
		r.server = (r.server + 1) % apiServers
		r.outcome, text = l.sender.attempt(ctx, r, r.server)
	}
	l.keep(r, text)
}

func (l *load) keep(r *request, text string) {
	r.answered = time.Now()
	took := r.answered.Sub(r.sent)
	r.broke = brokenOff(text)
	r.wrong = r.outcome == unmarked || r.outcome == refused || r.outcome == allowed && r.bad() || r.outcome == denied && !r.bad()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, r)
	if r.outcome == failed || r.wrong {
		r.said = fmt.Sprintf("%s %s %s %s of API server %d after %s: %s: %.400s",
			r.sent.Format("15:04:05.000"), r.verb, place(r.place), r.name, r.server, took.Round(time.Millisecond), r.outcome, text)
	}
}

// brokenOff reports whether a failure is that a connection ended, or was not
// taken. One that a client was about to use is said to have been idle.
func brokenOff(text string) bool {
	return slices.ContainsFunc([]string{
		"EOF", "connection reset", "broken pipe", "connection refused", "server closed idle connection", "use of closed network connection",
	}, func(sign string) bool {
		return strings.Contains(text, sign)
	})
}

// failures is how many requests have failed by now.
func (l *load) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.done {
		if r.outcome == failed {
			n++
		}
	}
	return n
}

// count is how many requests have been answered by now.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// failedBetween counts the failed requests that were under way between two times: an
// API server may call a webhook long after it got the request.
func (l *load) failedBetween(from, to time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.done {
		if r.outcome == failed && r.answered.After(from) && r.sent.Before(to) {
			n++
		}
	}
	return n
}

// failedOutside are those that failed and were under way in none of these times,
// which are in order, each with how long after one of them.
func (l *load) failedOutside(times [][2]time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, r := range l.done {
		if r.outcome != failed {
			continue
		}
		var end time.Time
		for _, t := range times {
			if r.sent.After(t[0]) {
				end = t[1]
			}
		}
		if !r.underWay(times) {
			out = append(out, fmt.Sprintf("%s after: %s", r.sent.Sub(end).Round(time.Millisecond), r.said))
		}
	}
	return out
}

// underWay reports whether it was, at any of these times.
func (r *request) underWay(times [][2]time.Time) bool {
	return slices.ContainsFunc(times, func(t [2]time.Time) bool { return r.answered.After(t[0]) && r.sent.Before(t[1]) })
}

// excuse has the answers to what was under way at these times not be wrong, and
// counts those that were.
func (l *load) excuse(times [][2]time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.done {
		if r.wrong && r.underWay(times) {
			r.wrong = false
			n++
		}
	}
	return n
}

// wrongSince counts the wrong answers to requests that were sent after a time.
func (l *load) wrongSince(from time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.done {
		if r.wrong && r.sent.After(from) {
			n++
		}
	}
	return n
}

// p99 is that of all requests.
func (l *load) p99() time.Duration { return l.p99Since(time.Time{}) }

// p99Since is that of the requests that were sent after a time.
func (l *load) p99Since(from time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for _, r := range l.done {
		if r.sent.After(from) {
			took = append(took, r.answered.Sub(r.sent))
		}
	}
	return percentile(took, 99)
}

func percentile(durations []time.Duration, percent int) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}
