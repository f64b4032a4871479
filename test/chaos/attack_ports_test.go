package chaos

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What callers without credentials do to the ports for metrics and for health. The numbers
// are for one replica: without a limit, 13,700 unfinished TLS requests took its memory of
// 512 MiB. A process opens at most 20,000 files here.
const (
	unfinishedOnMetrics = 14_000
	unfinishedOnHealth  = 2_000
	silentOnEither      = 1_000
	tokenSenders        = 64
	// portAttackTimeout bounds an attack that does not get through on a busy machine.
	portAttackTimeout = 10 * time.Minute
)

// What must hold meanwhile.
const (
	// The readiness probe of the installation: two failures remove the replica.
	readinessPeriod, readinessTimeout, readinessFailures = 2 * time.Second, 2 * time.Second, 2
	// tokenReviewsPerSecond is the most of one replica. Each scrape needs one at most, and
	// few clients scrape, every 15 s or so; an API server answers some thousand in a second.
	tokenReviewsPerSecond = 20
	// scrapes with a valid token, in percent, that have to be answered.
	answeredScrapes = 50
)

// portKinds are the attacks on these ports.
func portKinds() []string { return []string{"silent", "tokens", "unfinished"} }

// attackOtherPorts holds connections to the ports for metrics and health, and sends random
// bearer tokens. The replicas have to live, stay ready, answer scrapes, and not to pass
// the tokens on to API servers.
func attackOtherPorts(r *run) {
	r.limits.quiet = true
	r.makeScraper()
	defer func() { r.scraper = "" }()
	r.limitReplicas()
	lasts, fewest := time.Duration(r.size.of(25, 300))*time.Second, r.size.of(200, 1_000) // of each kind
	targets := r.all()[:r.size.of(1, replicas)]
	var attacks []attack
	for _, m := range targets {
		if _, err := m.scrape(r.Context()); err != nil {
			r.problem("%s serves no metrics before the attack: %v", m.name, err)
		}
		attacks = append(attacks, attack{
			Kind:    "ports",
			Count:   fewest,
			Lasts:   lasts,
			Over:    portAttackTimeout,
			Health:  m.health,
			Metrics: m.metrics,
		})
	}
	before, began := r.tokenReviews(), time.Now()
	stop := r.watchPorts(targets)
	r.under(attacks...)
	stop()
	reviews, took := r.tokenReviews()-before, time.Since(began)
	r.note("%d TokenReviews in %s", reviews, took.Round(time.Second))
	if most := len(targets) * tokenReviewsPerSecond * int(took.Seconds()+1); reviews > most {
		r.problem("replicas sent %d TokenReviews, at most %d may be", reviews, most)
	}
}

// makeScraper makes an account that may read metrics, and its token.
func (r *run) makeScraper() {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "scraper"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "chaos-scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ostiary-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: "scraper"}},
	}
	must(r.T, errors.Join(
		client.IgnoreAlreadyExists(r.admin().Create(r.Context(), account)),
		client.IgnoreAlreadyExists(r.admin().Create(r.Context(), binding)),
	))
	token := &authenticationv1.TokenRequest{}
	must(r.T, r.admin().SubResource("token").Create(r.Context(), account, token))
	r.scraper = token.Status.Token
}

// watchPorts probes the readiness of replicas as kubelet does, and scrapes them. The
// result ends that, and weighs what was answered.
func (r *run) watchPorts(targets []*member) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	worst, failures, answered, scrapes := 0, 0, 0, 0
	for _, m := range targets {
		group.Go(func() {
			inRow := 0
			for ctx.Err() == nil {
				if err := m.probe(ctx); err == nil || ctx.Err() != nil {
					inRow = 0
				} else {
					inRow++
					r.logf("%s is not ready: %v", m.name, err)
				}
				mu.Lock()
				if worst = max(worst, inRow); inRow > 0 {
					failures++
				}
				mu.Unlock()
				pause(r.T, readinessPeriod)
			}
		})
		group.Go(func() {
			for ctx.Err() == nil {
				_, err := m.scrape(ctx)
				mu.Lock()
				if ctx.Err() == nil {
					scrapes++
				}
				if err == nil {
					answered++
				}
				mu.Unlock()
				pause(r.T, time.Second)
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
		r.note("%d readiness probes failed, %d in a row; %d of %d scrapes answered", failures, worst, answered, scrapes)
		if worst >= readinessFailures {
			r.problem("%d readiness probes in a row failed", worst)
		}
		if answered*100 < scrapes*answeredScrapes {
			r.problem("only %d of %d scrapes were answered", answered, scrapes)
		}
	}
}

// probe asks for the readiness on a connection of its own.
func (m *member) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readinessTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.health+"/readyz", nil)
	if err != nil {
		return err
	}
	_, err = answerTo(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, req)
	return err
}

// tokenReviews is how many the API servers have answered.
func (r *run) tokenReviews() int {
	var sum float64
	for i := range apiServers {
		config := r.plane.Config(i)
		c, err := rest.HTTPClientFor(config)
		must(r.T, err)
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, config.Host+"/metrics", nil)
		must(r.T, err)
		text, err := answerTo(c, req)
		must(r.T, err)
		var reviews strings.Builder
		for line := range strings.Lines(text) {
			if strings.Contains(line, `resource="tokenreviews"`) {
				reviews.WriteString(line)
			}
		}
		sum += sumOf(reviews.String(), "apiserver_request_total")
	}
	return int(sum)
}

// attackPorts does all of it to one replica, and opens the connections over the first
// half of the time. One that is closed is opened again. It goes on until there were
// enough of each kind.
func attackPorts(ctx context.Context, a attack, report *report) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() {
		idle(ctx, a.Lasts)
		for ctx.Err() == nil && len(tooFew(portKinds(), a.Count, report.counts())) > 0 {
			idle(ctx, time.Second)
		}
		cancel()
	})
	hold := func(connections int, address string, talk talker) {
		for i := range connections {
			group.Go(func() {
				idle(ctx, a.Lasts/2*time.Duration(i)/time.Duration(connections))
				dialer := &net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 103, byte(i/250), byte(1+i%250))}}
				for ctx.Err() == nil {
					report.count(talk(ctx, dialer, address, report))
					idle(ctx, time.Second)
				}
			})
		}
	}
	hold(unfinishedOnMetrics, a.Metrics, unfinishedTLS)
	hold(unfinishedOnHealth, a.Health, unfinished)
	hold(silentOnEither, a.Metrics, saysNothing)
	hold(silentOnEither, a.Health, saysNothing)
	for range tokenSenders {
		group.Go(func() { sendTokens(ctx, a, report) })
	}
	group.Wait()
}

// talker holds a connection until it is closed, and returns what came of it.
type talker func(ctx context.Context, d *net.Dialer, address string, report *report) string

// idle waits for some time, or until the attack is over.
func idle(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// partOfRequest has as many headers as fit into the first buffer of a server.
func partOfRequest() string {
	return "GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 3500)
}

func unfinishedTLS(ctx context.Context, d *net.Dialer, address string, report *report) string {
	dialer := tls.Dialer{NetDialer: d, Config: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}} // nothing secret is sent
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "not connected"
	}
	return untilClosed(ctx, c, partOfRequest(), "unfinished", report)
}

func unfinished(ctx context.Context, d *net.Dialer, address string, report *report) string {
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "not connected"
	}
	return untilClosed(ctx, c, partOfRequest(), "unfinished", report)
}

func saysNothing(ctx context.Context, d *net.Dialer, address string, report *report) string {
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "not connected"
	}
	return untilClosed(ctx, c, "", "silent", report)
}

func untilClosed(ctx context.Context, c net.Conn, first, kind string, report *report) string {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, first); err != nil {
		return "closed"
	}
	report.answered(kind)
	_, _ = io.Copy(io.Discard, c)
	if ctx.Err() != nil {
		return "held to the end"
	}
	return "closed"
}

// sendTokens asks for metrics with a new token each time, on a connection that is kept.
func sendTokens(ctx context.Context, a attack, report *report) {
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // nothing secret is sent
	}}
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.Metrics+"/metrics", nil)
		if err != nil {
			report.wrong("making a request: %v", err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+rand.Text())
		resp, err := c.Do(req)
		if err != nil {
			report.count("broken")
			idle(ctx, 100*time.Millisecond)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		report.answered("tokens")
		report.count(strconv.Itoa(resp.StatusCode))
		if resp.StatusCode == http.StatusOK {
			report.wrong("a random token is answered with metrics")
		}
	}
}
