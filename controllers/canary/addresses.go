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

// maxAddresses bounds how many API servers are asked.
const maxAddresses = 32

// apiServers names the EndpointSlice that API servers list themselves in.
const apiServersNamespace, apiServersName = metav1.NamespaceDefault, "kubernetes"

// firstList bounds the wait for the addresses. They come from an API server, as
// does all that can be proven, so they are late only where they may not be read.
const firstList = 30 * time.Second

// list is the addresses of the API servers, as they change.
type list struct {
	store   cache.Store
	changed chan struct{}
}

// watchAddresses watches the addresses until ctx ends. It returns when it has
// them: what one API server proves before the others are known of would have
// policies fail closed that those do not reach Ostiary for.
func watchAddresses(ctx context.Context, config *rest.Config, log logr.Logger) (*list, error) {
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
	wait, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	if !cache.WaitForCacheSync(wait.Done(), informer.HasSynced) && ctx.Err() == nil {
		log.Error(wait.Err(), "cannot list the addresses of API servers, canaries go to one of them only",
			"namespace", apiServersNamespace, "endpointSlice", apiServersName)
	}
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
