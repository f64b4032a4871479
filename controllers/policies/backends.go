package policies

import (
	"bytes"
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
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
		// Of a backend that is refused nothing is read, and nobody connects to it.
		if b := policies[i].Spec.Backend; b != nil && len(validation.CheckBackend(b, l.BackendRule)) == 0 {
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
	if e.hasBundle == ok && bytes.Equal(e.bundle, bundle) {
		return e
	}
	changed := *e
	changed.hasBundle, changed.bundle = ok, bundle
	changed.prepared = e.prepared.WithBundle(bundle)
	return &changed
}

// placeholder stands for the generation before of a policy with a backend whose CA
// bundle is not known: a replica that has started since does not know that
// generation, and must not switch the policy off. Its requests are answered by
// its failurePolicy.
func (l *Loader) placeholder(p *v1alpha1.WebhookPolicy) *Entry {
	own := p.DeepCopy()
	own.Generation-- // what becomes of its registration says nothing about that of the backend
	own.Spec.Backend, own.Spec.BreakGlass = nil, false
	own.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}}
	compiled, _ := l.Compiler().CompilePlugin(own, nil, field.ErrorList{
		field.Required(field.NewPath("spec", "backend"), "the CA bundle of the backend is not known yet"),
	})
	return &Entry{Policy: own, Compiled: compiled, registrable: true, placeholder: true, prepared: registration.Prepare(own).WithoutCondition()}
}

// IsPlaceholder reports whether the requests of a policy are answered by its
// failurePolicy until the CA bundle of its backend is known.
func (e *Entry) IsPlaceholder() bool { return e.effective().placeholder }

// lacksBundle reports whether there is a backend that cannot be registered yet.
func (e *Entry) lacksBundle() bool { return e.Policy.Spec.Backend != nil && !e.hasBundle }
