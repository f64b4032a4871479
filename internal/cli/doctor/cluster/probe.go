package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/ostiary/ostiary/internal/cli/doctor"
)

const (
	// probeTimeout is how long a TLS handshake and its port-forward may take.
	probeTimeout = 15 * time.Second
	// maxProblems is the maximum of bytes of what a port-forward reports.
	maxProblems = 1 << 10
)

// Probe performs a TLS handshake with one ready Pod behind each Service in the dump, and
// adds the results. It calls done after each Service.
func Probe(ctx context.Context, config *rest.Config, d *doctor.Dump, done func()) {
	d.Handshakes = map[doctor.Target]doctor.Handshake{}
	for _, t := range d.Targets() {
		if backends := d.Backends(t); len(backends) > 0 {
			d.Handshakes[t] = probe(ctx, config, t, backends[0])
		}
		done()
	}
}

func probe(ctx context.Context, config *rest.Config, t doctor.Target, b doctor.Backend) doctor.Handshake {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out := doctor.Handshake{Pod: b.Pod}
	out.Err = Forward(ctx, config, t.Namespace, b, func(address string) error {
		var err error
		out.Chain, err = handshake(ctx, address, t.Name+"."+t.Namespace+".svc")
		return err
	})
	return out
}

// handshake returns the certificates that a server sends. The checks verify them, also
// those that a client would not accept.
func handshake(ctx context.Context, address, name string) (chain []*x509.Certificate, err error) {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} //nolint:gosec // see above; nothing is sent
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	encrypted, ok := connection.(*tls.Conn)
	if !ok {
		return nil, errors.New("not a TLS connection")
	}
	return encrypted.ConnectionState().PeerCertificates, nil
}

// Forward calls use with a local address that is forwarded to a port of a Pod.
func Forward(ctx context.Context, config *rest.Config, namespace string, b doctor.Backend, use func(address string) error) error {
	dialer, err := dialerFor(config, namespace, b.Pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, problems := make(chan struct{}), &problemText{}
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", b.Port)}, ready, io.Discard, problems)
	if err != nil {
		return fmt.Errorf("forwarding a port: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-ended:
		return fmt.Errorf("forwarding a port: %w", err)
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) != 1 {
		return errors.Join(errors.New("forwarding a port: no local port"), err)
	}
	err = use(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	cancel()
	err = errors.Join(err, <-ended)
	if text := problems.String(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// dialerFor connects through a WebSocket, or SPDY if the API server or a proxy does not
// support that, as kubectl does.
func dialerFor(config *rest.Config, namespace, pod string) (httpstream.Dialer, error) {
	at, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("forwarding a port: %w", err)
	}
	at = at.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("forwarding a port: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		return nil, fmt.Errorf("forwarding a port: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// problemText keeps the beginning of what a port-forward reports about its connections.
type problemText struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (p *problemText) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = append(p.text, text[:min(len(text), maxProblems-len(p.text))]...)
	return len(text), nil
}

// String returns the text on one line.
func (p *problemText) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(strings.Fields(string(p.text)), " ")
}
