package doctor

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// loopbacks finds webhooks on the machines of API servers, once for each host.
func (c *checker) loopbacks() {
	found := map[string][]*webhook{}
	for _, w := range c.webhooks {
		if w.ClientConfig.URL == nil {
			continue
		}
		u, err := url.Parse(*w.ClientConfig.URL)
		if err != nil {
			continue // API servers refuse it
		}
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			found[u.Hostname()] = append(found[u.Hostname()], w)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(found)) {
		message := fmt.Sprintf("host %q is each API server's own machine", host)
		var others []string
		for _, w := range found[host][1:] {
			others = append(others, w.String())
		}
		if len(others) > 0 {
			message += ", also for " + output.Some(others)
		}
		c.about(found[host][0], Warning, "url-loopback", "clientConfig.url", message, "run the webhook beside every API server, or use clientConfig.service")
	}
}

// service checks that a webhook's Service exists and has endpoints.
func (c *checker) service(w *webhook) {
	t, ok := w.target()
	if !ok || c.Services == nil {
		return
	}
	s := c.find(t)
	if s == nil {
		c.outage(w, "service-missing", "clientConfig.service", fmt.Sprintf("Service %s/%s does not exist", t.Namespace, t.Name),
			"delete the configuration if its operator was uninstalled; otherwise install the operator again or correct the reference")
		return
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return // API servers resolve the name themselves
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == t.Port })
	if i < 0 {
		c.outage(w, "service-port-missing", "clientConfig.service.port", fmt.Sprintf("Service %s/%s has no port %d", t.Namespace, t.Name, t.Port),
			"use one of its ports: "+output.Some(portsOf(s)))
		return
	}
	if c.EndpointSlices != nil && len(c.endpoints(t, s.Spec.Ports[i].Name)) == 0 {
		c.outage(w, "service-without-endpoints", "clientConfig.service", fmt.Sprintf("Service %s/%s has no ready endpoint for port %d", t.Namespace, t.Name, t.Port),
			"check that its selector matches Pods, and why these are not ready")
	}
}

func (c *checker) find(t Target) *corev1.Service {
	i := slices.IndexFunc(c.Services, func(s corev1.Service) bool { return s.Namespace == t.Namespace && s.Name == t.Name })
	if i < 0 {
		return nil
	}
	return &c.Services[i]
}

func portsOf(s *corev1.Service) []string {
	var out []string
	for _, p := range s.Spec.Ports {
		out = append(out, fmt.Sprint(p.Port))
	}
	return out
}

// endpoint is a ready endpoint of a port; 0 means that the port is not known.
type endpoint struct {
	discoveryv1.Endpoint
	port int32
}

// endpoints returns the ready endpoints of a port of a Service.
func (c *checker) endpoints(t Target, port string) []endpoint {
	var out []endpoint
	for i := range c.EndpointSlices {
		s := &c.EndpointSlices[i]
		if s.Namespace != t.Namespace || s.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		at := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == port })
		if at < 0 {
			continue
		}
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				out = append(out, endpoint{Endpoint: e, port: ptr.Deref(s.Ports[at].Port, 0)})
			}
		}
	}
	return out
}

// workload is what runs the Pods behind a Service.
type workload struct {
	object   Object
	replicas int32 // 0 for a DaemonSet: one on each node
	labels   map[string]string
}

// workloads returns the workloads whose Pods a Service selects.
func (c *checker) workloads(t Target) []workload {
	s := c.find(t)
	if s == nil || len(s.Spec.Selector) == 0 {
		return nil
	}
	var out []workload
	add := func(kind, namespace, name string, replicas *int32, template *corev1.PodTemplateSpec) {
		if namespace == t.Namespace && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(template.Labels)) {
			out = append(out, workload{object: Object{Kind: kind, Namespace: namespace, Name: name}, replicas: ptr.Deref(replicas, 1), labels: template.Labels})
		}
	}
	for i := range c.Deployments {
		d := &c.Deployments[i]
		add("Deployment", d.Namespace, d.Name, d.Spec.Replicas, &d.Spec.Template)
	}
	for i := range c.StatefulSets {
		s := &c.StatefulSets[i]
		add("StatefulSet", s.Namespace, s.Name, s.Spec.Replicas, &s.Spec.Template)
	}
	for i := range c.DaemonSets {
		d := &c.DaemonSets[i]
		add("DaemonSet", d.Namespace, d.Name, new(int32(0)), &d.Spec.Template)
	}
	return out
}

// replicas finds webhooks that fail closed and have a single replica.
func (c *checker) replicas(w *webhook) {
	t, ok := w.target()
	if !ok || !w.failsClosed() || w.isCanary() {
		return
	}
	all := c.workloads(t)
	if len(all) != 1 || all[0].replicas != 1 {
		return
	}
	c.about(w, Warning, "fail-with-one-replica", "failurePolicy",
		fmt.Sprintf("failurePolicy Fail, and %s has one replica: while it restarts, API servers refuse every request that matches", all[0].object),
		"run two replicas or more with a PodDisruptionBudget, or set failurePolicy: Ignore")
}
