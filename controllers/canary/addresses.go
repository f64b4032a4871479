package canary

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// maxAddresses bounds how many API servers are asked.
const maxAddresses = 32

// apiServers names the EndpointSlice that API servers list themselves in.
const apiServersNamespace, apiServersName = metav1.NamespaceDefault, "kubernetes"

// list is the addresses of the API servers, as they change.
type list struct {
	store   cache.Store
	changed chan struct{}
}

// watchAddresses watches the addresses until ctx ends.
func watchAddresses(ctx context.Context, config *rest.Config) (*list, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the API servers' addresses: %w", err)
	}
	informer := discoveryinformers.NewFilteredEndpointSliceInformer(c, apiServersNamespace, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, apiServersName).String()
	})
	l := &list{store: informer.GetStore(), changed: make(chan struct{}, 1)}
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
	return l, nil
}

func (l *list) addresses() []string {
	var out []string
	for _, obj := range l.store.List() {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			out = append(out, addressesOf(slice)...)
		}
	}
	return out
}

// addressesOf are host:port of each API server, sorted.
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

// at is the configuration of a client for one API server. Its certificate is
// expected to be for the name that the replica itself calls it by.
func at(config *rest.Config, address string) *rest.Config {
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
