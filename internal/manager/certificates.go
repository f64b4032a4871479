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

func (r *replica) addCertificates() error {
	dns, ips, err := r.options.ServerNames()
	if err != nil {
		return err
	}
	o := certificates.Options{
		Namespace:   r.options.Namespace,
		ServerNames: certificates.ServerNames{DNS: dns, IPs: ips},
		Lifetimes:   r.options.Certificates.WithDefaults(),
		Clock:       clock.RealClock{},
		ServerTime:  r.clock.Now,
		Published:   r.published,
		Replicas:    r.serving,
		LeaseReady:  r.lease.Ready,
		Changes:     []func(context.Context) <-chan struct{}{r.replicas.Subscribe},
		Events:      r.manager.GetEventRecorder("ostiary"),
		Log:         r.log.WithName("certificates"),
		Registerer:  ctrlmetrics.Registry,
	}
	if o.Source, err = r.certificateSource(o); err != nil {
		return err
	}
	r.provider = certificates.NewProvider(r.client, o)
	r.rotator = certificates.NewRotator(r.client, r.provider, o)
	return r.add(r.provider)
}

// certificateSource returns the issuer of the serving certificate; nil means that
// Ostiary issues it.
func (r *replica) certificateSource(o certificates.Options) (*certificates.Source, error) {
	issuer, ok, err := r.options.Issuer()
	switch {
	case err != nil:
		return nil, err
	case ok:
		return &certificates.Source{Secret: options.CertificateName, Request: &certificates.Request{
			Client: r.manager.GetClient(), Live: r.manager.GetAPIReader(),
			Namespace: o.Namespace, Name: options.CertificateName,
			Issuer: certificates.Issuer(issuer), ServerNames: o.ServerNames, Lifetimes: o.Lifetimes,
		}}, nil
	case r.options.CertificateSecret != "":
		return &certificates.Source{Secret: r.options.CertificateSecret}, nil
	}
	return nil, nil
}

// published returns what the webhook configurations tell API servers.
func (r *replica) published(ctx context.Context) (certificates.Published, error) {
	configs, err := policies.Configurations(ctx, r.manager.GetClient())
	if err != nil {
		return certificates.Published{}, err
	}
	trust := registration.TrustIn(configs, r.endpoint)
	return certificates.Published{Bundles: trust.Bundles, Paths: trust.Capabilities, Epoch: trust.Epoch}, nil
}

// serving returns the replicas that API servers may call.
func (r *replica) serving(ctx context.Context) ([]pki.Replica, error) {
	alive, err := r.replicas.Live(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pki.Replica, len(alive))
	for i, a := range alive {
		out[i] = pki.Replica{Name: a.Name, Epoch: a.Epoch}
	}
	return out, nil
}
