package canary

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// maxAddresses bounds the number of API servers that are probed.
const maxAddresses = 32

// apiServers names the EndpointSlice in which API servers publish their addresses.
const apiServersNamespace, apiServersName = metav1.NamespaceDefault, "kubernetes"

// listTimeout bounds the wait for the addresses. It expires only where they
// cannot be read.
const listTimeout = 30 * time.Second

// addressList holds the addresses of the API servers.
type addressList struct {
	store   cache.Store
	changed chan struct{}
}

// watchAddresses watches the addresses until ctx ends, and returns when it has
// listed them. A proof for one API server must not count for all of them.
func watchAddresses(ctx context.Context, config *rest.Config, log logr.Logger) (*addressList, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the API servers' addresses: %w", err)
	}
	informer := discoveryinformers.NewFilteredEndpointSliceInformer(c, apiServersNamespace, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, apiServersName).String()
	})
	l := &addressList{store: informer.GetStore(), changed: make(chan struct{}, 1)}
	poke := func() {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}); err != nil {
		return nil, fmt.Errorf("watching the API servers' addresses: %w", err)
	}
	go informer.RunWithContext(ctx)
	wait, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(wait.Done(), informer.HasSynced) && ctx.Err() == nil {
		log.Error(wait.Err(), "cannot list the addresses of API servers, probing one of them only",
			"namespace", apiServersNamespace, "endpointSlice", apiServersName)
	}
	return l, nil
}

func (l *addressList) addresses() []string {
	var out []string
	for _, obj := range l.store.List() {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			out = append(out, addressesOf(slice)...)
		}
	}
	return out
}

// addressesOf returns host:port of each API server, sorted.
func addressesOf(slice *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, port := range slice.Ports {
		if port.Port == nil || (port.Name != nil && *port.Name != "https") {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				out = append(out, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxAddresses)]
}

// configFor returns a client configuration for one API server. It verifies the
// server certificate for the host name in the replica's own configuration.
func configFor(config *rest.Config, address string) *rest.Config {
	out := rest.CopyConfig(config)
	if address == "" {
		return out
	}
	if out.ServerName == "" {
		out.ServerName = serverName(config.Host)
	}
	out.Host = "https://" + address
	return out
}

func serverName(host string) string {
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	if u, err := url.Parse(host); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	return "kubernetes.default.svc"
}
