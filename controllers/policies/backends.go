package policies

import (
	"bytes"
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
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

// trust sets the CA bundle of a policy with a backend: the known one, or else the
// registered one. Only the leader follows bundles, and a new leader must not revert what
// is registered. Without a bundle the previous generation stays planned, if there is one.
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
	if e.hasBundle == ok && bytes.Equal(e.bundle, bundle) {
		return e
	}
	changed := *e
	changed.hasBundle, changed.bundle = ok, bundle
	changed.prepared = e.prepared.WithBundle(bundle)
	return &changed
}

// placeholder returns an entry for the previous generation of a policy whose backend has
// no known CA bundle. A replica that has started since does not know that generation and
// must not disable the policy. failurePolicy decides its requests.
func (l *Loader) placeholder(p *v1alpha1.WebhookPolicy) *Entry {
	own := p.DeepCopy()
	own.Generation-- // the registration of the placeholder is not that of the backend
	own.Spec.Backend, own.Spec.BreakGlass = nil, false
	own.Spec.Validations = []v1alpha1.Validation{{Expression: "true"}}
	compiled, _ := l.Compiler().CompilePlugin(own, nil, field.ErrorList{
		field.Required(field.NewPath("spec", "backend"), "the CA bundle of the backend is not known yet"),
	})
	return &Entry{Policy: own, Compiled: compiled, registrable: true, placeholder: true, prepared: registration.Prepare(own).WithoutCondition()}
}

// IsPlaceholder reports whether failurePolicy decides the requests of a policy until the
// CA bundle of its backend is known.
func (e *Entry) IsPlaceholder() bool { return e.effective().placeholder }

// lacksBundle reports whether the backend cannot be registered yet.
func (e *Entry) lacksBundle() bool { return e.Policy.Spec.Backend != nil && !e.hasBundle }
