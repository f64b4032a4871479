package policies

import (
	"bytes"
	"context"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
)

// Backends finds the CA bundles of external webhooks.
type Backends interface {
	// Want sets the policies; those with a backend are followed.
	Want(policies []*v1alpha1.WebhookPolicy)
	// Bundle returns the CA bundle of a policy's backend. It is not ok while the bundle
	// is not known.
	Bundle(p *v1alpha1.WebhookPolicy) (bundle []byte, ok bool)
	// Adopt sets the registered bundle of a policy whose bundle is not known.
	Adopt(p *v1alpha1.WebhookPolicy, bundle []byte)
	// Subscribe returns a channel that receives after each change of a bundle.
	Subscribe(ctx context.Context) <-chan struct{}
}

func (l *Loader) backendsChanged(ctx context.Context) <-chan struct{} {
	if l.Backends == nil {
		return nil
	}
	return l.Backends.Subscribe(ctx)
}

func (l *Loader) wantBackends(policies []*v1alpha1.WebhookPolicy) {
	if l.Backends == nil {
		return
	}
	var wanted []*v1alpha1.WebhookPolicy
	for _, p := range policies {
		// Ostiary reads nothing for a refused backend and does not connect to it.
		if b := p.Spec.Backend; b != nil && len(validation.CheckBackend(b, l.BackendRule)) == 0 {
			wanted = append(wanted, p)
		}
	}
	l.Backends.Want(wanted)
}

// withBundle returns the generation with the CA bundle of its backend: the known one, or else
// the registered one. Only the leader follows bundles, and a new leader must not revert what
// is registered.
func (l *Loader) withBundle(g *Generation, observed registration.Bundles) *Generation {
	if l.Backends == nil || g.Policy.Spec.Backend == nil {
		return g
	}
	bundle, known := l.Backends.Bundle(g.Policy)
	if !known {
		bundle = observed.Of(g.prepared)
		if known = len(bundle) > 0; known {
			l.Backends.Adopt(g.Policy, bundle)
		}
	}
	if g.hasBundle == known && bytes.Equal(g.bundle, bundle) {
		return g
	}
	changed := *g
	changed.hasBundle = known
	changed.bundle = bundle
	changed.prepared = g.prepared.WithBundle(bundle)
	return &changed
}

// placeholder returns a replacement for the previous generation of a policy whose latest one this
// replica cannot use. A replica that has started since does not know that generation and
// must not disable the policy. failurePolicy decides its requests.
func placeholder(compiler *policy.Compiler, p *v1alpha1.WebhookPolicy) *Generation {
	own := p.DeepCopy()
	own.Generation-- // the registration of the placeholder is not that of the backend
	own.Spec.Backend = nil
	own.Spec.BreakGlass = false
	own.Spec.Validations = []v1alpha1.Validation{{Expression: "true"}}
	compiled, _ := compiler.CompilePlugin(own, nil, whyPlaceholder(p))
	return &Generation{
		Policy:      own,
		Compiled:    compiled,
		registrable: true,
		placeholder: true,
		prepared:    registration.Prepare(own).WithoutCondition(),
	}
}
