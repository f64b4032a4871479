package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

func (cp *ControlPlane) describeEtcd(i int, binary string) *component {
	name := Etcd
	if cp.options.Etcds > 1 {
		name = fmt.Sprintf("%s-%d", Etcd, i)
	}
	return &component{
		name: name, binary: binary, ports: make([]int, 2),
		args: func(ports []int) []string {
			return append(etcdArguments(cp.directory, name, ports, cp.etcdPeers()), cp.options.EtcdArgs...)
		},
		probes: func(ports []int) []string { return []string{httpsURL(ports[0], "/health")} },
	}
}

// etcdPeers are the members of etcd, as in the flags of each.
func (cp *ControlPlane) etcdPeers() string {
	var peers []string
	for _, c := range cp.etcds {
		peers = append(peers, c.name+"="+peerURL(c.ports[1]))
	}
	return strings.Join(peers, ",")
}

func (cp *ControlPlane) etcdURLs() []string {
	var urls []string
	for _, c := range cp.etcds {
		urls = append(urls, httpsURL(c.ports[0], ""))
	}
	return urls
}

// startEtcds starts the members of etcd, which have to know of each other from
// the start.
func (cp *ControlPlane) startEtcds(ctx context.Context) error {
	if len(cp.etcds) > 1 {
		for _, c := range cp.etcds {
			if err := c.choosePorts(ctx); err != nil {
				return fmt.Errorf("starting %s: %w", c.name, err)
			}
			c.pinned = true
		}
	}
	return cp.startSideBySide(ctx, cp.etcds)
}

// KillEtcd ends member i of etcd at once, as the loss of its machine would.
func (cp *ControlPlane) KillEtcd(i int) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped || i < 0 || i >= len(cp.etcds) {
		return fmt.Errorf("killing etcd: no member %d", i)
	}
	return cp.etcds[i].stop(0)
}

// StartEtcd starts member i of etcd again, with what it had stored, and returns
// when it is healthy, which needs a majority.
func (cp *ControlPlane) StartEtcd(ctx context.Context, i int) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped || i < 0 || i >= len(cp.etcds) {
		return fmt.Errorf("starting etcd: no member %d", i)
	}
	c := cp.etcds[i]
	if c.process != nil {
		return fmt.Errorf("starting %s: it was not stopped", c.name)
	}
	return cp.start(ctx, c)
}

// AskEtcd posts a question to member i of etcd, in the JSON of its gateway, and
// reads the answer. The path is one like /v3/maintenance/status.
func (cp *ControlPlane) AskEtcd(ctx context.Context, i int, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("asking etcd for %s: %w", path, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cp.etcdURLs()[i]+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking etcd for %s: %w", path, err)
	}
	response, err := cp.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking etcd for %s: %w", path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return fmt.Errorf("asking etcd for %s: %w", path, err)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("asking etcd for %s: %s: %s", path, response.Status, text)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(text, answer)
}
