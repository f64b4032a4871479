package manager

import (
	"context"
	"errors"

	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/controllers/authentication"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/policyvalidator"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/controllers/sources"
	"github.com/ostiary/ostiary/webhooks"
)

// newServer returns the webhook server. callers is nil if callers are not authenticated.
func newServer(
	p process, set policySet, provider *certificates.Provider, callers *authentication.Authenticator,
) (*webhooks.Server, error) {
	load := p.options.Load
	o := webhooks.Options{
		Address:        p.options.WebhookAddress,
		GetCertificate: provider.GetCertificate,
		Accepts:        provider.Accepts,
		Distrusted:     provider.ReportDistrust,
		Evaluator:      evaluator{set.store, set.reviewer},
		Expired:        p.lease.Expired,
		Registerer:     ctrlmetrics.Registry,
		Log:            p.log.WithName("webhooks"),
		Drain:          webhooks.Drain{Min: p.options.DrainMin, Max: p.options.DrainMax},

		MaxEvaluations: load.Evaluations, MaxInFlight: load.InFlight,
		MaxConnections: load.Connections, MaxInFlightBytes: load.BodyMemory.Value(),
	}
	if callers != nil {
		o.Authenticator = callers
	}
	return webhooks.New(o)
}

// evaluator evaluates policies, and reviews WebhookPolicies.
type evaluator struct {
	*policies.Store
	*policyvalidator.Reviewer
}

// newAuthenticator returns what authenticates callers, and adds it. It returns nil if the
// options do not ask for it.
func newAuthenticator(p process) (*authentication.Authenticator, error) {
	if !p.options.AuthenticatesCallers() {
		return nil, nil //nolint:nilnil // callers are not authenticated
	}
	callers, err := authentication.New(authentication.Options{
		Client:      p.client,
		Namespace:   p.options.Namespace,
		CAFile:      p.options.ClientCA,
		Names:       p.options.ClientNames,
		TokenSecret: p.options.CallerTokenSecret,
		BasicSecret: p.options.CallerBasicSecret,
		Clock:       clock.RealClock{},
		Log:         p.log.WithName("callers"),
		Registerer:  ctrlmetrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	return callers, p.add(callers)
}

// newReporter returns what reports the state of this replica in its Lease.
func newReporter(p process, set policySet, objects *sources.Sources, provider *certificates.Provider) *replicas.Reporter {
	return replicas.NewReporter(replicas.Options{
		Client:    p.client,
		Namespace: p.options.Namespace,
		Lease:     p.lease,
		Identity:  p.identity,
		Pod:       p.pod,
		Report: func(context.Context) replicas.Report {
			report := replicas.Report{
				Report:          set.loader.Report(),
				Epoch:           provider.Committed(),
				Fingerprint:     provider.Fingerprint(),
				BadCertificates: provider.Distrusted(),
			}
			set.exceptions.Report(&report.Report)
			objects.Lookups.Report(&report.Report) // after the versions of policies, whose lookups it knows
			return report
		},
		Violations: set.counts.Encode,

		ExceptionUses: set.exceptions.EncodeUses,

		// The replica is not ready before, and its Lease would report lookups that no request needs yet.
		Loaded:  func() error { return errors.Join(set.store.Loaded(), objects.Lookups.Ready()) },
		Current: func(ctx context.Context) error { return set.loader.Current(ctx, p.manager.GetAPIReader()) },
		Changes: []func(context.Context) <-chan struct{}{
			set.store.Subscribe, provider.Subscribe, set.exceptions.Subscribe, objects.Lookups.Subscribe,
		},
		Log: p.log.WithName("replicas"),
	})
}
