package policies

import (
	"bytes"
	"context"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// Backends know the CA bundles of the webhooks that somebody else hosts.
type Backends interface {
	// Want is told of all policies, of which those with a backend are of interest.
	Want(policies []*v1alpha1.WebhookPolicy)
	// Bundle is what the API server is to verify a policy's backend with. It is
	// not ok while none is known here.
	Bundle(p *v1alpha1.WebhookPolicy) (bundle []byte, ok bool)
	// Adopt is told what is registered for a policy where no bundle is known.
	Adopt(p *v1alpha1.WebhookPolicy, bundle []byte)
	// Subscribe gives a channel that receives after each change of a bundle.
	Subscribe(ctx context.Context) <-chan struct{}
}

func (l *Loader) backendsChanged(ctx context.Context) <-chan struct{} {
	if l.Backends == nil {
		return nil
	}
	return l.Backends.Subscribe(ctx)
}

func (l *Loader) wantBackends(policies []v1alpha1.WebhookPolicy) {
	if l.Backends == nil {
		return
	}
	var wanted []*v1alpha1.WebhookPolicy
	for i := range policies {
		if policies[i].Spec.Backend != nil {
			own := policies[i] // so that the list is not kept
			wanted = append(wanted, &own)
		}
	}
	l.Backends.Want(wanted)
}

// trust gives the entry of a policy with a backend the CA bundle: the one that
// is known here, or else the one that is registered. Only the leader follows
// bundles, and one that begins to lead must not undo what is registered. Without
// a bundle the policy is not planned, or only as it was before.
func (l *Loader) trust(e *Entry, observed registration.Bundles) *Entry {
	if l.Backends == nil || e.Policy.Spec.Backend == nil {
		return e
	}
	bundle, ok := l.Backends.Bundle(e.Policy)
	if !ok {
		bundle = observed.Of(e.prepared)
		if ok = len(bundle) > 0; ok {
			l.Backends.Adopt(e.Policy, bundle)
		}
	}
	if e.trusted == ok && bytes.Equal(e.bundle, bundle) {
		return e
	}
	changed := *e
	changed.trusted, changed.bundle = ok, bundle
	changed.prepared = e.prepared.WithBundle(bundle)
	return &changed
}

// untrusted reports whether there is a backend that cannot be registered yet.
func (e *Entry) untrusted() bool { return e.Policy.Spec.Backend != nil && !e.trusted }
