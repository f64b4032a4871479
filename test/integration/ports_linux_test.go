package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
)

const (
	// portFlood is the number of unfinished requests on a port, and randomTokens that of invalid tokens.
	portFlood, randomTokens = 2000, 5000
	// portLimit is the number of connections that a port accepts, with those beyond the limit that get 503.
	portLimit = 512 + 64
	// otherFiles are the files that a replica has open without connections, at most.
	otherFiles = 100
	// tokenReviews is the number of TokenReviews that one client can cause at once, and later in each second.
	tokenReviews = 5
)

// Clients without credentials that leave connections open on the ports for metrics and probes, and that send tokens which
// are invalid, take bounded memory and files of a replica, and little of the API server's time. Probes and scrapers are
// answered meanwhile.
func TestFloodsOfMetricsAndProbes(t *testing.T) {
	c := install(t)
	group := limited(t, installedLimit)
	t.Setenv("GOMEMLIMIT", installedGo)
	c.manager(t)
	m := c.another(t, "--metrics-auth=true")
	group.take(t, m.cmd.Process.Pid)
	client, token := c.scraper(t)
	scrape := func(token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+m.metrics+"/metrics", http.NoBody)
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		must(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, string(body)
	}
	await(t).Eventually(func() error { // the permission is effective a moment after it has been stored
		if code, body := scrape(token); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, body)
		}
		return nil
	}).Should(Succeed())
	answered := func(when string) {
		t.Helper()
		if err := m.ready(t.Context()); err != nil {
			t.Errorf("a probe %s: %v", when, err)
		}
		if code, body := scrape(token); code != http.StatusOK || !strings.Contains(body, "ostiary_policies") {
			t.Errorf("a scrape %s: %d %s", when, code, body)
		}
	}
	for name, flood := range map[string]struct {
		address string
		config  *tls.Config
	}{
		"TLS on the metrics port": {m.metrics, client.Transport.(*http.Transport).TLSClientConfig},
		"the metrics port":        {m.metrics, nil},
		"the health port":         {m.health, nil},
	} {
		for i := range portFlood {
			leaveOpen(t, flood.address, flood.config)
			if i%500 == 499 {
				answered(fmt.Sprintf("beside %d connections to %s", i+1, name))
			}
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid))
	must(t, err)
	if most := 2*portLimit + otherFiles; len(files) > most {
		t.Errorf("%d files are open, want at most %d", len(files), most)
	}
	before, began := c.tokenReviews(t), time.Now()
	for range randomTokens {
		if code, body := scrape(fmt.Sprintf("invalid-%d", time.Now().UnixNano())); code != http.StatusUnauthorized &&
			code != http.StatusTooManyRequests {
			t.Fatalf("an invalid token: %d %s, want 401 or 429", code, body)
		}
	}
	answered("beside random tokens")
	most := tokenReviews + int(time.Since(began).Seconds()) + 2 // the last second, and the token of the scraper
	if got := c.tokenReviews(t) - before; got > most {
		t.Errorf("%d tokens caused %d TokenReviews, want at most %d", randomTokens, got, most)
	}
	t.Logf("%d open files, %d MiB at most of %d MiB, %d TokenReviews for %d tokens", len(files), group.mostHeld(t)>>20, installedLimit>>20,
		c.tokenReviews(t)-before, randomTokens)
}

// leaveOpen opens a connection with an unfinished request, from another address, until the test ends. The replica may have
// closed it meanwhile.
func leaveOpen(t *testing.T, address string, config *tls.Config) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := dialer.DialContext(t.Context(), "tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if config != nil {
		config = config.Clone()
		config.ServerName = "127.0.0.1"
		c = tls.Client(c, config)
	}
	_, _ = fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: %s", strings.Repeat("a", 3500))
}

// tokenReviews returns the number of TokenReviews that the API server has answered.
func (c *cluster) tokenReviews(t *testing.T) int {
	t.Helper()
	clients, err := kubernetes.NewForConfig(plane.Config())
	must(t, err)
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(context.WithoutCancel(t.Context()))
	must(t, err)
	total := 0.0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="tokenreviews"`) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			must(t, err)
			total += value
		}
	}
	return int(total)
}
