package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const dialTimeout = 2 * time.Second

// router takes connections with HTTP CONNECT, and gets them to where they go:
// the network between two programs, as far as a test changes it.
type router struct {
	mu    sync.Mutex
	hosts map[string]string // addresses that are somewhere else
	drops bool              // what is sent
	open  []net.Conn
}

func newRouter(t *testing.T, network, address string, hosts map[string]string) *router {
	t.Helper()
	r := &router{hosts: hosts}
	l, err := net.Listen(network, address)
	must(t, err)
	server := &http.Server{Handler: r, ReadHeaderTimeout: dialTimeout}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { r.cut(); _ = server.Close() })
	return r
}

// drop has the router drop what is sent from now on, or pass it on.
func (r *router) drop(drops bool) {
	r.mu.Lock()
	r.drops = drops
	r.mu.Unlock()
	r.cut()
}

func (r *router) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		_ = c.Close()
	}
	r.open = nil
}

func (r *router) keep(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, conns...)
}

// ServeHTTP implements http.Handler.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	target, moved := r.hosts[req.Host]
	drops := r.drops
	r.mu.Unlock()
	if !moved {
		target = req.Host
	}
	if req.Method != http.MethodConnect {
		http.Error(w, "this is no proxy for requests", http.StatusMethodNotAllowed)
		return
	}
	var inner net.Conn
	if !drops {
		var err error
		if inner, err = net.DialTimeout("tcp", target, dialTimeout); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	outer, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	r.keep(outer)
	_, _ = io.WriteString(outer, "HTTP/1.1 200 OK\r\n\r\n")
	if inner == nil {
		return
	}
	r.keep(inner)
	for _, pair := range [][2]net.Conn{{outer, inner}, {inner, outer}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		}()
	}
}

// secondAPIServer starts another one, whose calls of webhooks go through a
// router. Both have an address that EndpointSlices may hold: those for examples,
// which nothing but a router knows.
func (c *cluster) secondAPIServer(t *testing.T) (calls *router, addresses []string, kubeconfig string, second client.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ostiary-") //nolint:usetesting // the path of a socket has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	egress, socket := filepath.Join(dir, "egress.yaml"), filepath.Join(dir, "router")
	calls = newRouter(t, "unix", socket, nil)
	must(t, os.WriteFile(egress, fmt.Appendf(nil, `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: controlplane
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, socket), 0o600))
	i, err := plane.AddAPIServer(t.Context(), "", "--egress-selector-config-file="+egress)
	must(t, err)
	t.Cleanup(func() { _ = plane.StopAPIServer(i) })
	second, err = client.New(plane.Config(i), client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
	must(t, err)

	hosts := map[string]string{}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      "kubernetes",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6443)}},
	}
	for n, config := range []*rest.Config{plane.Config(), plane.Config(i)} {
		at, err := url.Parse(config.Host)
		must(t, err)
		ip := fmt.Sprintf("192.0.2.%d", n+1)
		addresses = append(addresses, ip+":6443")
		hosts[ip+":6443"] = at.Host
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	must(t, c.Create(t.Context(), slice))
	t.Cleanup(func() { _ = c.Delete(context.Background(), slice) })
	kubeconfig = filepath.Join(dir, "routed.kubeconfig")
	routed, err := clientcmd.LoadFromFile(c.kubeconfig)
	must(t, err)
	ways := cptest.FreeAddress()
	newRouter(t, "tcp", ways, hosts)
	for _, entry := range routed.Clusters {
		entry.ProxyURL = "http://" + ways
	}
	must(t, clientcmd.WriteToFile(*routed, kubeconfig))
	return calls, addresses, kubeconfig, second
}

// Promise: status tells the truth, and never lock out. One API server behind a
// firewall is enough for policies not to fail closed, and everybody can read
// which one it is.
func TestEveryAPIServerHasToReachOstiary(t *testing.T) {
	c := install(t)
	calls, addresses, kubeconfig, second := c.secondAPIServer(t)
	calls.drop(true)
	m := c.restarted(t, "--kubeconfig="+kubeconfig)
	m.awaitReady(t)
	c.awaitLeader(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("two-servers", namespace))
	ask := func() error { return second.Create(t.Context(), configMap(namespace, bad), client.DryRunAll) }
	reachable := func(address string) float64 {
		return m.series(t, fmt.Sprintf(`ostiary_webhook_reachable{address=%q,phase="validate"}`, address))
	}

	p := c.awaitUnreachable(t, "two-servers", "TimedOut", addresses[1]+": the API server does not reach Ostiary")
	if got := c.failurePolicyOf(t, "two-servers"); got != admissionregistrationv1.Ignore || p.Status.FailurePolicy != got {
		t.Errorf("failurePolicy %s, the status says %s, want Ignore", got, p.Status.FailurePolicy)
	}
	await(t).Eventually(func() [2]float64 {
		return [2]float64{
			reachable(addresses[0]), reachable(addresses[1]),
		}
	}).Should(Equal([2]float64{1, 0}))
	c.awaitDenied(t, namespace, "two-servers") // through the one that reaches Ostiary
	await(t).Eventually(ask).Should(Succeed())

	calls.drop(false)
	p = c.awaitReady(t, "two-servers")
	if got := condition(p, v1alpha1.ConditionReachable); got.Status != metav1.ConditionTrue || got.Reason != "Reachable" {
		t.Errorf("Reachable is %+v", got)
	}
	if got := c.failurePolicyOf(t, "two-servers"); got != admissionregistrationv1.Fail || p.Status.FailurePolicy != got {
		t.Errorf("failurePolicy %s, the status says %s, want Fail", got, p.Status.FailurePolicy)
	}
	await(t).Eventually(func() [2]float64 {
		return [2]float64{
			reachable(addresses[0]), reachable(addresses[1]),
		}
	}).Should(Equal([2]float64{1, 1}))
	await(t).Eventually(func() bool { return deniedBy(ask(), "two-servers") }).Should(BeTrue())
}
