package policies

import (
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Compact is a transform for the cache of policies that saves memory. It removes what
// nothing reads. A new version of a loaded generation shares its spec, and statuses share
// their texts: most policies have the same.
func (s *Store) Compact(obj any) (any, error) {
	p, ok := obj.(*v1alpha1.WebhookPolicy)
	if !ok {
		return obj, nil
	}
	p.ManagedFields = nil
	delete(p.Annotations, corev1.LastAppliedConfigAnnotation)
	if state := s.State(); state != nil && p.Spec.Plugin == nil { // the loader completes the rules of a plugin
		if e := state.Entries[p.UID]; e != nil && e.Policy.Generation == p.Generation {
			p.Spec = e.Policy.Spec
		}
	}
	share(&p.Kind, &p.APIVersion, &p.Status.Actions)
	p.Status.Conditions, p.Status.Webhooks = exact(p.Status.Conditions), exact(p.Status.Webhooks)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		share(&c.Type, &c.Reason, &c.Message)
		share(&c.Status)
	}
	for i := range p.Status.Webhooks {
		w := &p.Status.Webhooks[i]
		share(&w.Kind, &w.Configuration, &w.Webhook)
	}
	return p, nil
}

// exact returns a copy without the room to grow that decoders leave.
func exact[T any](s []T) []T { return append([]T(nil), s...) }

// share replaces texts by equal ones that are in use, if there are any.
func share[T ~string](texts ...*T) {
	for _, t := range texts {
		*t = unique.Make(*t).Value()
	}
}
