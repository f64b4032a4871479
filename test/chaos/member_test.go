package chaos

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	// probeEvery and endpointLag are how soon a replica gets calls, or ceases to,
	// after it has changed its mind: a readiness probe twice, and the time until
	// every node knows.
	probeEvery  = 500 * time.Millisecond
	endpointLag = 200 * time.Millisecond
)

// member is one replica: a Pod, whose process may be started again.
type member struct {
	world   *world
	name    string
	gateway *gateway
	program string   // that it was started with
	flags   []string // likewise

	webhook, health, metrics string // addresses
	running                  *controlplane.Running
	leaving                  atomic.Bool // has got SIGTERM
	crashed                  atomic.Bool // killed on purpose
}

// add makes a replica that has not started.
func (w *world) add(t *testing.T) *member {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	m := &member{
		world: w, name: fmt.Sprintf("ostiary-%d", w.serial),
		webhook: cptest.FreeAddress(), health: cptest.FreeAddress(), metrics: cptest.FreeAddress(),
	}
	var err error
	m.gateway, err = newGateway(w, w.serial%apiServers)
	must(t, err)
	must(t, m.writeKubeconfig())
	w.members = append(w.members, m)
	return m
}

func (w *world) all() []*member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.members)
}

func (m *member) kubeconfig() string { return m.world.dir + "/" + m.name + ".kubeconfig" }

func (m *member) writeKubeconfig() error {
	const name = "ostiary"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "http://" + m.gateway.address}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, m.kubeconfig())
}

// start starts the process of the replica, and has the Service follow it.
func (m *member) start(t *testing.T, flags ...string) {
	t.Helper()
	running, err := m.world.plane.Run(t.Context(), controlplane.Program{
		Name: m.name, Path: m.world.current,
		Args: func([]int) []string {
			return slices.Concat([]string{
				"--kubeconfig=" + m.kubeconfig(),
				"--namespace=" + systemNamespace,
				"--webhook-address=" + m.webhook,
				"--metrics-address=" + m.metrics,
				"--health-address=" + m.health,
			}, m.world.endpointFlags(m.world.flags), flags)
		},
		Env: []string{"POD_NAME=" + m.name, "GOMEMLIMIT=450MiB", "WRONG_CLOCK=" + m.clock()},
	})
	must(t, err)
	m.running, m.program, m.flags = running, m.world.current, slices.Clone(m.world.flags)
	m.leaving.Store(false)
	m.crashed.Store(false)
	go m.follow(running)
}

// follow does what kubelet and the controller of endpoints do.
func (m *member) follow(running *controlplane.Running) {
	failures := 0
	for {
		select {
		case <-running.Done():
			time.Sleep(endpointLag)
			m.world.service.Drop(m.webhook)
			return
		case <-time.After(probeEvery):
		}
		if m.leaving.Load() || m.world.frozen.Load() || !m.world.up[0].Load() && !m.world.up[1].Load() {
			continue // without an API server, or storage, readiness is unknown
		}
		err := m.ready(context.Background())
		switch known := m.world.service.Has(m.webhook); {
		case err == nil && !known:
			time.Sleep(endpointLag)
			m.world.service.Add(m.webhook)
		case err != nil && known:
			if failures++; failures >= 2 {
				time.Sleep(endpointLag)
				m.world.service.Drop(m.webhook)
			}
			continue
		}
		failures = 0
	}
}

func (m *member) ended() bool {
	if m.running == nil {
		return true
	}
	select {
	case <-m.running.Done():
		return true
	default:
		return false
	}
}

// kill ends the process as a crash would.
func (m *member) kill() {
	m.crashed.Store(true)
	m.running.Kill()
}

// restart starts a process that was killed again, as kubelet does.
func (m *member) restart(t *testing.T, flags ...string) {
	t.Helper()
	<-m.running.Done()
	m.start(t, flags...)
}

// terminate deletes the Pod: endpoints lose it while it ends.
func (m *member) terminate(t *testing.T) {
	t.Helper()
	m.leaving.Store(true)
	must(t, m.running.Signal(syscall.SIGTERM))
	go func() {
		time.Sleep(endpointLag)
		m.world.service.Drop(m.webhook)
	}()
}

// remove takes a replica that has ended, or is ending, out of the world.
func (m *member) remove(t *testing.T) {
	t.Helper()
	await(t, m.name+" to end", func() error {
		if !m.ended() {
			return fmt.Errorf("it is running")
		}
		return nil
	})
	if err := m.running.Err(); err != nil && !m.crashed.Load() {
		t.Errorf("%s ended with %v: %s", m.name, err, m.running.LogTail())
	}
	m.discard()
}

func (m *member) discard() {
	w := m.world
	w.mu.Lock()
	w.members = slices.DeleteFunc(w.members, func(other *member) bool { return other == m })
	w.mu.Unlock()
	if m.running != nil {
		m.running.Kill()
	}
	w.service.Drop(m.webhook)
	m.gateway.close()
	m.freeGroup()
}

func (m *member) pause() { _ = m.running.Signal(syscall.SIGSTOP) }

func (m *member) resume() { _ = m.running.Signal(syscall.SIGCONT) }

func (m *member) get(ctx context.Context, address, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	return answerTo(http.DefaultClient, req)
}

// scrape returns the metrics.
func (m *member) scrape(ctx context.Context) (string, error) {
	if m.world.scraper == "" {
		return m.get(ctx, m.metrics, "/metrics")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // as long as Prometheus waits
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.metrics+"/metrics", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+m.world.scraper)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // loopback
	}}
	return answerTo(&client, req)
}

func answerTo(c *http.Client, req *http.Request) (string, error) {
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

func (m *member) ready(ctx context.Context) error {
	if m.ended() {
		return fmt.Errorf("%s has ended", m.name)
	}
	_, err := m.get(ctx, m.health, "/readyz?verbose")
	return err
}

func (m *member) log() string {
	log, err := os.ReadFile(m.world.plane.LogFile(m.name))
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// awaitAll waits until every replica is ready and gets calls.
func (w *world) awaitAll(t *testing.T) {
	t.Helper()
	await(t, "all replicas to be ready", func() error {
		for _, m := range w.all() {
			if m.ended() {
				t.Fatalf("%s has ended with %v: %s", m.name, m.running.Err(), m.running.LogTail())
			}
			if err := m.ready(t.Context()); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if !w.service.Has(m.webhook) {
				return fmt.Errorf("%s gets no calls", m.name)
			}
		}
		return nil
	})
}

func (w *world) holder(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := w.admin().Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "ostiary-leader"}, lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("no replica leads")
	}
	return *lease.Spec.HolderIdentity, nil
}

// releaseLease takes the lease from a replica that was killed, so that no scenario has to
// wait until it runs out.
func (w *world) releaseLease(t *testing.T, m *member) {
	t.Helper()
	holder, err := w.holder(t.Context())
	if err == nil && strings.Contains(m.log(), holder) {
		must(t, client.IgnoreNotFound(w.admin().Delete(t.Context(), leaderLease())))
	}
}

func leaderLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "ostiary-leader"}}
}

// leader is the replica that leads.
func (w *world) leader(t *testing.T) *member {
	t.Helper()
	var leader *member
	await(t, "a leader", func() error {
		holder, err := w.holder(t.Context())
		if err != nil {
			return err
		}
		for _, m := range w.all() {
			if strings.Contains(m.log(), holder) && !m.ended() {
				leader = m
				return nil
			}
		}
		return fmt.Errorf("%s, which leads, is none of ours", holder)
	})
	return leader
}
