package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// neighbourRate is how many requests a second the neighbour of a hostile tenant begins.
const neighbourRate = 40

// tenant sends requests about its own namespace, to the API servers in turn.
type tenant struct {
	place   string
	clients []*http.Client
	hosts   []string
	next    atomic.Int64
}

func newTenant(kubeconfigs []string, user, place string) (*tenant, error) {
	t := &tenant{place: place}
	for _, file := range kubeconfigs {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return nil, fmt.Errorf("reading the address of an API server: %w", err)
		}
		config.Timeout, config.Impersonate.UserName = requestTimeout, user
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, fmt.Errorf("making the client of a tenant: %w", err)
		}
		t.clients, t.hosts = append(t.clients, c), append(t.hosts, config.Host)
	}
	return t, nil
}

// send returns the status code, 0 for none, and the beginning of the answer.
func (t *tenant) send(ctx context.Context, method, api, resource, body string) (int, string) {
	i := int(t.next.Add(1)) % len(t.hosts)
	url := fmt.Sprintf("%s/%s/namespaces/%s/%s", t.hosts[i], api, t.place, resource)
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := t.clients[i].Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what is missing makes the answer no denial
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, string(text)
}

// creation is a kind of object that the neighbour creates, as dry run.
type creation struct {
	api, resource string
	good, bad     string // objects
	message       string // of the policy that denies what is bad
}

// creations has one for each policy.
func creations() []creation {
	deployment := `{"metadata":{"name":"web"},"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	return []creation{
		{
			api:      "apis/apps/v1",
			resource: "deployments",
			good:     fmt.Sprintf(deployment, 1),
			bad:      fmt.Sprintf(deployment, 9),
			message:  "too many replicas",
		},
		{
			api:      "api/v1",
			resource: "services",
			good:     `{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`,
			bad:      `{"metadata":{"name":"bad-service"},"spec":{"ports":[{"port":80}]}}`,
			message:  "forbidden name",
		},
		{
			api:      "api/v1",
			resource: "serviceaccounts",
			good:     `{"metadata":{"name":"good"}}`,
			bad:      `{"metadata":{"name":"bad"}}`,
			message:  "bad name",
		},
		{
			api:      "api/v1",
			resource: "configmaps",
			good:     `{"metadata":{"name":"good"},"data":{"a":"b"}}`,
			bad:      `{"metadata":{"name":"bad"},"data":{"a":"aaa"}}`,
			message:  "bad data",
		},
	}
}

// neighbour is a tenant that does not attack, with the answers to its requests.
type neighbour struct {
	*tenant
	enforced bool // the policies are, so bad objects must be denied

	mu                    sync.Mutex
	took                  []time.Duration
	denied, unanswered    int
	passed, deniedWrongly []string
	errors                []string
}

func newNeighbour(kubeconfigs []string, enforced bool) (*neighbour, error) {
	t, err := newTenant(kubeconfigs, neighbourUser, neighbourPlace)
	return &neighbour{tenant: t, enforced: enforced}, err
}

// sendFor sends requests at a fixed rate, and returns when all are answered.
func (n *neighbour) sendFor(ctx context.Context, over time.Duration) {
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / neighbourRate)
	defer tick.Stop()
	end := time.Now().Add(over)
	for i := 0; time.Now().Before(end) && ctx.Err() == nil; i++ {
		<-tick.C
		group.Go(func() { n.create(ctx, creations()[i/2%len(creations())], i%2 == 1) })
	}
	group.Wait()
}

func (n *neighbour) create(ctx context.Context, c creation, bad bool) {
	object := c.good
	if bad {
		object = c.bad
	}
	began := time.Now()
	code, text := n.send(ctx, http.MethodPost, c.api, c.resource+"?dryRun=All", object)
	took := time.Since(began)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.took = append(n.took, took)
	said := fmt.Sprintf("%s, bad: %t, after %s: %d: %.300s", c.resource, bad, took.Round(time.Millisecond), code, text)
	switch {
	case code == http.StatusCreated && bad && n.enforced:
		n.passed = append(n.passed, said)
	case code == http.StatusCreated:
	case !strings.Contains(text, "denied the request"):
		n.unanswered++
		n.errors = append(n.errors, said)
	case !bad || !n.enforced || !strings.Contains(text, c.message):
		n.deniedWrongly = append(n.deniedWrongly, said)
	default:
		n.denied++
	}
}

// allDenied is an error unless every policy denies what is bad, at every API server.
func (n *neighbour) allDenied(ctx context.Context) error {
	for _, c := range creations() {
		for range n.hosts {
			if code, text := n.send(ctx, http.MethodPost, c.api, c.resource+"?dryRun=All", c.bad); !strings.Contains(text, c.message) {
				return fmt.Errorf("bad %s are answered with %d: %.300s", c.resource, code, text)
			}
		}
	}
	return nil
}
