package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/internal/pki"
)

// publication is the bundle and path in all configurations, and since when this
// process has seen them. It is never stored: a new leader starts counting again,
// so no other machine's clock matters.
type publication struct {
	bundle []byte
	path   string
	since  time.Time // monotonic
}

// observe collects the inputs of the next action besides the Secrets.
func (k *Rotator) observe(ctx context.Context, f observedSecrets) (pki.Observed, error) {
	o := k.options
	seen := pki.Observed{
		Clocks:   o.clocks(),
		Request:  RequestedRotation(f.ca),
		External: f.external,
		Memory:   pki.State{CA: k.memory, Serving: k.provider.currentState().Serving},
	}
	published, err := o.Published(ctx)
	if err != nil {
		return pki.Observed{}, fmt.Errorf("reading the published bundles: %w", err)
	}
	seen.Published = k.compare(published, f.state.Serving)
	// Remember the stored CA, unless it cannot be a successor of the last one.
	k.memory = f.state.Remembered(seen)
	seen.Memory.CA = k.memory
	if seen.Replicas, err = o.Replicas(ctx); err != nil {
		return pki.Observed{}, fmt.Errorf("listing the replicas: %w", err)
	}
	return seen, nil
}

func (k *Rotator) compare(published Published, serving pki.Serving) pki.Publication {
	stored, path := serving.Bundle.PEM(), serving.Path()
	out := pki.Publication{Epoch: published.Epoch, Current: true, Roots: roots(published)}
	for _, bundle := range published.Bundles {
		out.Current = out.Current && bytes.Equal(bundle, stored)
	}
	for _, p := range published.Paths {
		out.Current = out.Current && p == path
		if pki.CheckPath(p) == nil { // others are manual edits
			out.Paths = append(out.Paths, p)
		}
	}
	if !out.Current {
		k.published = publication{}
		return out
	}
	if k.published.bundle == nil || k.published.path != path || !bytes.Equal(k.published.bundle, stored) {
		k.published = publication{bundle: append([]byte{}, stored...), path: path, since: k.options.Clock.Now()}
	}
	out.For = k.options.Clock.Since(k.published.since)
	return out
}

func roots(published Published) []*x509.Certificate {
	var out []*x509.Certificate
	for _, bundle := range published.live() {
		out = append(out, bundle.Roots()...)
	}
	return out
}

// Reasons of the events about the Secrets.
const (
	eventWaiting = "RotationWaiting"
	eventDone    = "RotationDone"
)

// eventOf returns the reason and the type of the event for an action. Repairs are
// warnings.
func eventOf(action pki.Action) (reason, kind string) {
	switch action.Kind {
	case pki.CreateCA:
		if action.CrossCertified {
			return "RotationStarted", corev1.EventTypeNormal
		}
		return "CACreated", corev1.EventTypeWarning
	case pki.RestoreCA:
		return "CARestored", corev1.EventTypeWarning
	case pki.IssueLeaf:
		return "CertificateIssued", corev1.EventTypeNormal
	case pki.RestoreLeaf:
		return "CertificateRestored", corev1.EventTypeWarning
	case pki.Retire:
		return eventDone, corev1.EventTypeNormal
	}
	return "BundleChanged", corev1.EventTypeNormal
}

// recordAction reports a write.
func (k *Rotator) recordAction(secret *corev1.Secret, action pki.Action, state pki.State) {
	k.waitReason = ""
	k.metrics.writes.WithLabelValues(string(action.Kind)).Inc()
	reason, kind := eventOf(action)
	k.event(secret, kind, reason, string(action.Kind), "%s; epoch %d, phase %s", action.Reason, state.CA.Epoch, state.Phase())
}

// reportWaiting reports, once, why a rotation waits.
func (k *Rotator) reportWaiting(f observedSecrets, action pki.Action) {
	if action.Reason == k.waitReason {
		return
	}
	k.waitReason = action.Reason
	if action.Reason == "" {
		return
	}
	k.options.Log.Info("waiting", "reason", action.Reason, "phase", f.state.Phase(), "epoch", f.state.CA.Epoch)
	if f.ca != nil {
		k.event(f.ca, corev1.EventTypeNormal, eventWaiting, string(action.Kind), "%s", action.Reason)
	}
}

func (k *Rotator) event(secret *corev1.Secret, kind, reason, action, format string, args ...any) {
	// The recorder gets a reference, not the Secret with its content.
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID,
		ResourceVersion: secret.ResourceVersion,
	}
	k.options.Events.Eventf(about, nil, kind, reason, action, format, args...)
}
