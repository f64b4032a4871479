package main

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsOptions say how metrics are served: with the certificate that API
// servers are shown too, so that who scrapes can verify it under the same bundle
// and does not hand its token to somebody else.
func (r *replica) metricsOptions() metricsserver.Options {
	o := metricsserver.Options{BindAddress: r.options.MetricsAddress}
	if !r.options.MetricsAuth {
		return o
	}
	o.SecureServing = true
	o.FilterProvider = filters.WithAuthenticationAndAuthorization
	o.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS13
		c.NextProtos = []string{"http/1.1"}
		// The watcher is made after the manager that serves the metrics.
		c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return r.watcher.GetCertificate(hello) }
	}}
	return o
}
