package manager

import (
	"context"

	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/internal/registration"
)

// newCertificates returns what serves and what rotates the certificate, and adds the former.
func newCertificates(p process) (*certificates.Provider, *certificates.Rotator, error) {
	dns, ips, err := p.options.ServerNames()
	if err != nil {
		return nil, nil, err
	}
	o := certificates.Options{
		Namespace:   p.options.Namespace,
		ServerNames: certificates.ServerNames{DNS: dns, IPs: ips},
		Lifetimes:   p.options.Certificates.WithDefaults(),
		Clock:       clock.RealClock{},
		ServerTime:  p.clock.Now,
		Published:   p.published,
		Replicas:    p.serving,
		LeaseReady:  p.lease.Ready,
		Changes:     []func(context.Context) <-chan struct{}{p.replicas.Subscribe},
		Events:      p.manager.GetEventRecorder("ostiary"),
		Log:         p.log.WithName("certificates"),
		Registerer:  ctrlmetrics.Registry,
	}
	if o.Source, err = p.certificateSource(o); err != nil {
		return nil, nil, err
	}
	provider := certificates.NewProvider(p.client, o)
	return provider, certificates.NewRotator(p.client, provider, o), p.add(provider)
}

// certificateSource returns the issuer of the serving certificate; nil means that
// Ostiary issues it.
func (p process) certificateSource(o certificates.Options) (*certificates.Source, error) {
	issuer, ok, err := p.options.Issuer()
	switch {
	case err != nil:
		return nil, err
	case ok:
		return &certificates.Source{Secret: options.CertificateName, Request: &certificates.Request{
			Client: p.manager.GetClient(), Live: p.manager.GetAPIReader(),
			Namespace: o.Namespace, Name: options.CertificateName,
			Issuer: certificates.Issuer(issuer), ServerNames: o.ServerNames, Lifetimes: o.Lifetimes,
		}}, nil
	case p.options.CertificateSecret != "":
		return &certificates.Source{Secret: p.options.CertificateSecret}, nil
	}
	return nil, nil
}

// published returns what the webhook configurations tell API servers.
func (p process) published(ctx context.Context) (certificates.Published, error) {
	configs, err := policies.Configurations(ctx, p.manager.GetClient())
	if err != nil {
		return certificates.Published{}, err
	}
	trust := registration.TrustIn(configs, p.endpoint)
	return certificates.Published{Bundles: trust.Bundles, Paths: trust.Capabilities, Epoch: trust.Epoch}, nil
}

// serving returns the replicas that API servers may call.
func (p process) serving(ctx context.Context) ([]pki.Replica, error) {
	alive, err := p.replicas.Live(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pki.Replica, len(alive))
	for i, a := range alive {
		out[i] = pki.Replica{Name: a.Name, Epoch: a.Epoch}
	}
	return out, nil
}
