package secrets

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

// Get reads a Secret without a cache; nil means that it does not exist.
func Get(ctx context.Context, from corev1client.SecretInterface, name string) (*corev1.Secret, error) {
	s, err := from.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s, err
}

// Write creates a TLS Secret if old is nil. Otherwise it replaces the content of
// old, unless that has changed since it was read. It preserves other clients'
// labels and annotations.
func Write(ctx context.Context, to corev1client.SecretInterface, name string, old *corev1.Secret,
	data map[string][]byte) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS}
	if old != nil {
		s = old.DeepCopy()
	}
	s.Data = data
	metav1.SetMetaDataLabel(&s.ObjectMeta, registration.LabelManagedBy, registration.ManagedBy)
	if old == nil {
		return to.Create(ctx, s, metav1.CreateOptions{})
	}
	return to.Update(ctx, s, metav1.UpdateOptions{})
}
