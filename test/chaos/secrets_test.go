package chaos

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/internal/registration"
)

func (w *world) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	return s, w.admin().Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: name}, s)
}

// change edits a Secret and stores it.
func (w *world) change(t *testing.T, name string, edit func(*corev1.Secret)) {
	t.Helper()
	await(t, "to write "+name, func() error {
		s, err := w.secret(t.Context(), name)
		if err != nil {
			return err
		}
		edit(s)
		return w.admin().Update(t.Context(), s)
	})
}

func (w *world) deleteSecret(t *testing.T, name string) {
	t.Helper()
	await(t, "to delete "+name, func() error {
		s := &corev1.Secret{}
		s.Namespace, s.Name = systemNamespace, name
		return client.IgnoreNotFound(w.admin().Delete(t.Context(), s))
	})
}

// put stores a Secret as it was once.
func (w *world) put(t *testing.T, old *corev1.Secret) {
	t.Helper()
	await(t, "to write "+old.Name, func() error {
		s, err := w.secret(t.Context(), old.Name)
		if apierrors.IsNotFound(err) {
			s = old.DeepCopy()
			s.ResourceVersion, s.UID = "", ""
			return w.admin().Create(t.Context(), s)
		}
		if err != nil {
			return err
		}
		s.Data = old.Data
		return w.admin().Update(t.Context(), s)
	})
}

// steady is nil when no rotation is under way: one CA, its leaf, and every
// configuration with the bundle of it.
func (w *world) steady(ctx context.Context) error {
	ca, err := w.secret(ctx, caSecret)
	if err != nil {
		return err
	}
	serving, err := w.secret(ctx, servingSecret)
	if err != nil {
		return err
	}
	epoch := string(ca.Data["epoch"])
	if ca.Data["previous.crt"] != nil || string(serving.Data["epoch"]) != epoch || string(serving.Data["trust-epoch"]) != epoch {
		return fmt.Errorf("epoch %s, previous %t, leaf %s, bundle %s", epoch, ca.Data["previous.crt"] != nil,
			serving.Data["epoch"], serving.Data["trust-epoch"])
	}
	return w.carried(ctx, serving.Data["ca.crt"], epoch)
}

// carried is nil when every configuration carries a bundle.
func (w *world) carried(ctx context.Context, bundle []byte, epoch string) error {
	configs, err := w.configs(ctx)
	if err != nil {
		return err
	}
	if len(configs) < configurations {
		return fmt.Errorf("%d configurations of %d", len(configs), configurations)
	}
	for _, c := range configs {
		for _, hook := range registration.Webhooks(c) {
			if !bytes.Equal(hook.ClientConfig.CABundle, bundle) || c.GetAnnotations()[registration.AnnotationEpoch] != epoch {
				return fmt.Errorf("configuration %s has another bundle, of epoch %s", c.GetName(), c.GetAnnotations()[registration.AnnotationEpoch])
			}
		}
	}
	return nil
}

func (w *world) awaitSteady(t *testing.T) {
	t.Helper()
	await(t, "the end of the rotation", func() error { return w.steady(t.Context()) })
}

func (w *world) epoch(t *testing.T) string {
	t.Helper()
	s, err := w.secret(t.Context(), caSecret)
	must(t, err)
	return string(s.Data["epoch"])
}

// ask asks for a rotation.
func (w *world) ask(t *testing.T) {
	t.Helper()
	w.change(t, caSecret, func(s *corev1.Secret) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[certificates.RotateAnnotation] = time.Now().Format(time.RFC3339Nano)
	})
}

// awaitRotated waits for the end of a rotation that began at an epoch.
func (w *world) awaitRotated(t *testing.T, before string) {
	t.Helper()
	await(t, "a rotation", func() error {
		ca, err := w.secret(t.Context(), caSecret)
		if err == nil && string(ca.Data["epoch"]) == before {
			err = fmt.Errorf("still epoch %s", before)
		}
		if err != nil {
			return err
		}
		return w.steady(t.Context())
	})
}

// rotate asks for a rotation and waits for its end.
func (w *world) rotate(t *testing.T) time.Duration {
	t.Helper()
	before := w.epoch(t)
	w.ask(t)
	began := time.Now()
	w.awaitRotated(t, before)
	return time.Since(began)
}
