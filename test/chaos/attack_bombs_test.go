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

// attackBombs sends what costs most for its size: objects to be decoded and
// evaluated, directly and through API servers, and policies to be compiled.
func attackBombs(r *run) {
	r.prepareAttack()
	defer r.endAttack()
	over := time.Duration(r.size.of(15, 120)) * time.Second
	stop := r.sendBombs()
	r.under(attack{Kind: "objects", Over: over}, attack{Kind: "compilations", Over: over})
	stop()
}

// attackConnections holds connections that announce large bodies and send little
// or nothing, beside those of slow-clients. Large objects must be answered meanwhile.
func attackConnections(r *run) {
	r.prepareAttack()
	defer r.endAttack()
	over := time.Duration(r.size.of(15, 120)) * time.Second
	flood := r.startFlood(over / 2)
	defer func() { r.note("%s", flood()) }()
	stop := r.sendBombs()
	r.under(attack{Kind: "announced", Over: over})
	stop()
}

// shapes make JSON values of about so many bytes that take most to decode,
// compare, copy or match.
func shapes() map[string]func(size int) string {
	list := func(element string) func(int) string {
		return func(size int) string {
			return "[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]"
		}
	}
	text := func(part string) func(int) string {
		return func(size int) string { return `"` + strings.Repeat(part, size/len(part)) + `!"` }
	}
	const deepest = 9_000
	return map[string]func(int) string{
		"objects":   list("{}"),
		"arrays":    list("[]"),
		"small":     list(`{"":0}`),
		"numbers":   list("1000"),
		"strings":   list(`"a"`),
		"addresses": list(`"255.255.255.255/33"`),
		"decimals":  list("1e-9"),
		"escapes":   text(`\u003c`),
		"letters":   text("a"),
		"commas":    text(","),
		"depth": func(int) string {
			return strings.Repeat(`{"a":`, deepest) + "0" + strings.Repeat("}", deepest)
		},
		"exponent": func(int) string { return `"1e999999999"` },
		"members": func(size int) string {
			var b strings.Builder
			for i := 0; b.Len() < size; i++ {
				fmt.Fprintf(&b, `"%x":0,`, i)
			}
			return "{" + b.String() + `"":0}`
		},
	}
}

// sendObjects sends reviews of the largest objects of each shape.
func sendObjects(ctx context.Context, a attack, report *report) {
	all := shapes()
	names := slices.Sorted(maps.Keys(all))
	sendAll(ctx, a, report, func(ctx context.Context, w *attacker) {
		shape := all[anyOf(w.random, names)](anyOf(w.random, []int{3 << 20, 7 << 20, 18 << 20}))
		member := anyOf(w.random, []string{"spec", "data"})
		object := `{"apiVersion":"attack.example.com/v1","kind":"Bomb","metadata":{"name":"bad-bomb","namespace":"` + attackedPlace + `"},"` + member + `":` + shape + `}`
		review := string(marshal(reviewOf("CREATE", "attack.example.com", "Bomb", "bombs", "bad-bomb", "OBJECT", nil)))
		path := w.Witness
		if w.random.IntN(2) == 0 {
			path = anyOf(w.random, w.Attacked)
		}
		code, answer := w.post(ctx, path, []byte(strings.Replace(review, `"OBJECT"`, object, 1)))
		if path != w.Witness {
			return
		}
		report.witness()
		if code == http.StatusOK && !strings.Contains(string(answer), `"allowed":false`) {
			report.wrong("a bad bomb is answered with %.300s", answer)
		}
	})
}

// sendCompilations asks for the review of policies that take long to compile.
func sendCompilations(ctx context.Context, a attack, report *report) {
	repeat := func(element string, n int) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	var variables strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&variables, `{"name":"v%d","expression":"1"},`, i)
	}
	constraints := `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]},`
	specs := []string{
		`"validations":[` + repeat(`{"expression":"true"}`, 40_000) + `]`,
		`"variables":[` + strings.TrimSuffix(variables.String(), ",") + `],"validations":[{"expression":"true"}]`,
		`"validations":[` + repeat(`{"expression":"`+strings.Repeat("(", 200)+"1 == 1"+strings.Repeat(")", 200)+`"}`, 64) + `]`,
		`"validations":[` + repeat(`{"expression":"[`+repeat("[1,2,3].all(x, x > 0)", 500)+`].all(y, y)"}`, 64) + `]`,
		`"validations":[{"expression":"'a'.matches('` + strings.Repeat("(a{1,50}){1,20}", 50) + `')"}]`,
		`"validations":[{"expression":"object.a` + strings.Repeat(".a", 5_000) + ` == 1"}]`,
		`"validations":[{"expression":"` + strings.Repeat("true && ", 8_000) + `true"}]`,
	}
	sendAll(ctx, a, report, func(ctx context.Context, w *attacker) {
		object := `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + anyOf(w.random, specs) + `}}`
		text := string(marshal(reviewOf("CREATE", "admission.ostiary.dev", "WebhookPolicy", "webhookpolicies", "p", "OBJECT", nil)))
		text = strings.Replace(text, `"OBJECT"`, object, 1)
		text = strings.ReplaceAll(text, `"version":"v1"`, `"version":"v1alpha1"`)
		w.post(ctx, w.Review, []byte(strings.Replace(text, `"namespace":"`+attackedPlace+`",`, "", 1)))
	})
}

// holdAnnounced keeps 1,000 connections, of 50 addresses, that announce bodies of
// 7 MiB: a third of them sends nothing, the others a little every second.
func holdAnnounced(ctx context.Context, a attack, report *report) {
	var group sync.WaitGroup
	for i := range 1_000 {
		group.Go(func() {
			source := &net.TCPAddr{IP: net.IPv4(127, 102, byte(i%5), byte(1+i%50))}
			dialer := tls.Dialer{
				NetDialer: &net.Dialer{Timeout: 10 * time.Second, LocalAddr: source},
				Config:    &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // nothing secret is sent
			}
			for ctx.Err() == nil {
				report.count(announce(ctx, &dialer, a.Addresses[i%len(a.Addresses)], a.Witness, i%3))
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	group.Wait()
}

// announce holds one connection and returns the code that ended it.
func announce(ctx context.Context, dialer *tls.Dialer, address, path string, kind int) string {
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "broken"
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	length := "Content-Length: 7340032\r\n"
	if kind == 2 {
		length = "Transfer-Encoding: chunked\r\n"
	}
	head := "POST " + path + "?timeout=30s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + length + "\r\n"
	if _, err := io.WriteString(c, head); err != nil {
		return "broken"
	}
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
// API servers, of 2 MiB each, until stop, which weighs the answers: what is called
// bad is denied, and the rest allowed, or denied as unreadable.
func (r *run) sendBombs() (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var names, bodies []string
	for name, shape := range shapes() {
		names, bodies = append(names, name), append(bodies, shape(2<<20))
	}
	var sent, refused, failedToAnswer atomic.Int64
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
			for n := i; ctx.Err() == nil; n++ {
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
					r.tell("%s: %d: %.200s", names[shape], code, text)
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
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
