package manager

import (
	"crypto/tls"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// addMetrics serves metrics with the certificate that API servers verify, too, so
// that a scraper verifies it with the same bundle before it sends its token.
func (r *replica) addMetrics() error {
	o := metricsserver.Options{BindAddress: r.options.MetricsAddress}
	if r.options.MetricsAuth {
		o.SecureServing = true
		o.FilterProvider = filters.WithAuthenticationAndAuthorization
		o.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS13
			c.NextProtos = []string{"http/1.1"}
			c.GetCertificate = r.provider.GetCertificate
		}}
	}
	server, err := metricsserver.NewServer(o, r.config, r.manager.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making the server of metrics: %w", err)
	}
	if server == nil { // the address is 0
		return nil
	}
	return r.add(server)
}
