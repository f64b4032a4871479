package chaos

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// bombs is how many of each kind of bomb the replicas have to answer. The senders send
// the same kind at a time.
func (r *run) bombs() int { return r.size.of(1, 3*attackers) }

// attackBombs sends what costs most for its size: objects to be decoded and
// evaluated, directly and through API servers, and policies to be compiled. It
// ends when enough of each kind are answered.
func attackBombs(r *run) {
	r.prepareAttack()
	defer r.endAttack()
	over := time.Duration(r.size.of(12, 60)) * time.Minute
	stop := r.sendBombs(r.size.of(6, 130))
	r.under(attack{Kind: "objects", Count: r.bombs(), Over: over}, attack{Kind: "compilations", Count: r.bombs(), Over: over})
	stop()
}

// attackConnections holds connections that announce large bodies and send little
// or nothing, beside those of slow-clients. Large objects must be answered meanwhile.
func attackConnections(r *run) {
	r.prepareAttack()
	defer r.endAttack()
	over := time.Duration(r.size.of(20, 120)) * time.Second
	flood := r.startFlood(over / 2)
	defer func() { r.note("%s", flood()) }()
	stop := r.sendBombs(r.size.of(6, 130))
	r.under(attack{Kind: "announced", Count: announcedConnections / len(announcements()), Over: over})
	stop()
}

// announcedConnections are held at a time.
const announcedConnections = 999

// announcements are the kinds of connections that announce a body.
func announcements() []string { return []string{"nothing", "little", "chunked"} }

// holdAnnounced keeps connections, of 50 addresses, that announce bodies of 28 MiB: a
// third of them sends nothing, the others a little every second.
func holdAnnounced(ctx context.Context, a attack, report *report) {
	var group sync.WaitGroup
	for i := range announcedConnections {
		group.Go(func() {
			source := &net.TCPAddr{IP: net.IPv4(127, 102, byte(i%5), byte(1+i%50))}
			dialer := tls.Dialer{
				NetDialer: &net.Dialer{Timeout: 10 * time.Second, LocalAddr: source},
				Config:    &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // nothing secret is sent
			}
			for ctx.Err() == nil {
				code := announce(ctx, &dialer, a.Addresses[i%len(a.Addresses)], a.Witness, i%3, report)
				report.count(code)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	group.Wait()
}

// announce holds one connection and returns the code that ended it.
func announce(ctx context.Context, dialer *tls.Dialer, address, path string, kind int, report *report) string {
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "broken"
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	length := "Content-Length: 29360128\r\n"
	if kind == 2 {
		length = "Transfer-Encoding: chunked\r\n"
	}
	head := "POST " + path + "?timeout=30s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + length + "\r\n"
	if _, err := io.WriteString(c, head); err != nil {
		return "broken"
	}
	report.answered(announcements()[kind])
	answer := make(chan string, 1)
	go func() {
		line := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, line); err != nil {
			answer <- "broken"
			return
		}
		answer <- string(line[len("HTTP/1.1 "):])
	}()
	little := []string{"", strings.Repeat(" ", 1000), "3e8\r\n" + strings.Repeat(" ", 1000) + "\r\n"}[kind]
	for {
		select {
		case code := <-answer:
			return code
		case <-time.After(time.Second):
			if _, err := io.WriteString(c, little); err != nil {
				return "broken"
			}
		}
	}
}

// sendBombs has six tenants create custom resources of every shape through the
// API servers, of 2 MiB each, twice as many as there have to be at least, until stop,
// which waits until there were enough, and weighs the answers: what is called bad is denied, and the rest allowed, or denied
// as unreadable.
func (r *run) sendBombs(least int) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var names, bodies []string
	for _, name := range slices.Sorted(maps.Keys(shapes())) {
		names, bodies = append(names, name), append(bodies, shapes()[name](2<<20))
	}
	var next, sent, refused, failedToAnswer atomic.Int64
	var mu sync.Mutex
	var wrong []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	var group sync.WaitGroup
	for i := range attackers {
		config := r.plane.Config(i % apiServers)
		config.Timeout, config.QPS, config.WarningHandler = time.Minute, -1, rest.NoWarnings{}
		raw, err := rest.HTTPClientFor(config)
		must(r.T, err)
		group.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1) - 1)
				if n >= 2*least {
					return
				}
				name := fmt.Sprintf("bad-%d", n)
				if n%2 == 0 {
					name = fmt.Sprintf("good-%d", n)
				}
				shape := n / 2 % len(names)
				code, text := createBomb(ctx, raw, config.Host, name, bodies[shape])
				if ctx.Err() != nil {
					return
				}
				sent.Add(1)
				switch denied := strings.Contains(text, "denied the request"); {
				case denied && (n%2 == 1 || strings.Contains(text, "unreadable")):
					refused.Add(1)
				case denied:
					note("a good bomb of %s is denied: %.300s", names[shape], text)
				case code < 300 && n%2 == 1:
					note("a bad bomb of %s is allowed", names[shape])
				case code >= 300:
					failedToAnswer.Add(1)
					r.logf("%s: %d: %.200s", names[shape], code, text)
				}
			}
		})
	}
	return func() {
		for deadline := time.Now().Add(2 * time.Minute); sent.Load() < int64(least) && time.Now().Before(deadline); {
			pause(r.T, time.Second)
		}
		cancel()
		group.Wait()
		if n := sent.Load(); n < int64(least) {
			r.problem("tenants sent only %d objects, want %d", n, least)
		}
		if len(wrong) > 0 {
			r.problem("%d bombs were answered wrongly", len(wrong))
			r.evidence = append(r.evidence, wrong...)
		}
		r.note("%d objects of 2 MiB through API servers, %d of them denied, %d not answered", sent.Load(), refused.Load(), failedToAnswer.Load())
	}
}

// createBomb creates a custom resource as dry run.
func createBomb(ctx context.Context, c *http.Client, host, name, spec string) (int, string) {
	body := `{"apiVersion":"attack.example.com/v1","kind":"Bomb","metadata":{"name":"` + name + `"},"spec":{"a":` + spec + `}}`
	url := host + "/apis/attack.example.com/v1/namespaces/" + attackedPlace + "/bombs?dryRun=All"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 599, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what is missing makes the answer no denial
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, string(text)
}
